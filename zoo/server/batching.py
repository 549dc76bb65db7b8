"""The request queue of a model, which batches compatible requests into one model call.

Only model calls run in threads; everything else runs in the event loop, so no locks are needed.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses

import numpy as np
from prometheus_client import Gauge, Histogram

from zoo.server.errors import RequestError

ROWS = Histogram("zoo_call_rows", "Rows of calls", ["model"], buckets=(1, 2, 4, 8, 16, 32, 64))
QUEUED = Gauge("zoo_queued_requests", "Requests that wait", ["model"])


@dataclasses.dataclass(eq=False)
class Item:
    """A request in the queue, or a part of a long one."""

    signature_name: str
    inputs: dict  # {name: NumPy array}
    rows: int
    key: tuple | None  # items with the same key can share a batch; None: not batched
    future: asyncio.Future  # receives {name: NumPy array}


class Batcher:
    """Calls a model for queued requests, in batches where possible.

    Args:
        model: `zoo.server.models.Model`.
        limits: `zoo.server.limits.Limits`.

    Attributes:
        queue: the requests that wait.
        calls: the model calls that are running.
    """

    def __init__(self, model, limits):
        self.model = model
        self.limits = limits
        self.queue = collections.deque()
        QUEUED.labels(model.name).set_function(lambda queue=self.queue: len(queue))
        self.calls = set()
        self._workers = set()  # tasks that run while the queue has requests
        # Its threads end when it is no longer referenced.
        self._threads = concurrent.futures.ThreadPoolExecutor(limits.calls_at_once)

    async def run(self, signature_name, inputs, names=None):
        """Queues a request and returns outputs of the signature: {name: NumPy array}.

        A request of more than `max_batch` rows takes several calls, and goes to the end of the
        queue after each. If the awaiting task is cancelled, calls that have not begun are dropped.

        Args:
            signature_name, inputs: see `zoo.server.models.Model.call`.
            names: names of the requested outputs; all by default.

        Raises:
            RequestError: 400 if the request has too many rows; 413 if the outputs have too many
                values; 503 if the queue is full; or the error of the model.
        """
        limits = self.limits
        rows = max((len(array) for array in inputs.values() if array.ndim), default=1)
        if rows > limits.max_rows:
            raise RequestError(f"The request has {rows:,} rows, more than {limits.max_rows:,}.")
        outputs = await self._run(signature_name, inputs, rows)
        outputs = {name: outputs[name] for name in names or outputs}
        count = sum(array.size for array in outputs.values())
        if count > limits.max_values:
            reason = f"The answer has {count:,} values, more than {limits.max_values:,}."
            raise RequestError(f"{reason} Request fewer rows at a time.", 413)
        return outputs

    async def _run(self, signature_name, inputs, rows):
        key = self._key(signature_name, inputs)
        size = self.limits.max_batch
        if key is None or rows <= size:
            return await self._queued(signature_name, inputs, rows, key)
        parts = []
        for start in range(0, rows, size):
            part = {name: array[start : start + size] for name, array in inputs.items()}
            count = min(size, rows - start)
            parts.append(await self._queued(signature_name, part, count, key))
            if not _has_rows(parts[-1], count):
                return await self._queued(signature_name, inputs, rows, None)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _key(self, name, inputs):
        """The key of an `Item`: requests of one signature with the same shapes of rows."""
        is_batched = self.model.signatures[name].is_batched
        if not is_batched or len({len(array) for array in inputs.values()}) != 1:
            return None
        return name, *(inputs[key].shape[1:] for key in sorted(inputs))

    async def _queued(self, *request):
        if len(self.queue) >= self.limits.max_queue:
            raise RequestError("The model's queue is full. Try again later.", 503)
        item = Item(*request, asyncio.get_running_loop().create_future())
        self.queue.append(item)
        if len(self._workers) < self.limits.calls_at_once:
            self._workers.add(asyncio.create_task(self._work()))
        try:
            return await item.future
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):  # it is not in the queue if its call has begun
                self.queue.remove(item)
            raise

    async def _work(self):
        try:
            while self.queue:
                if sum(item.rows for item in self.queue) < self.limits.max_batch:
                    await asyncio.sleep(self.limits.batch_wait_ms / 1000)  # for others to come
                if self.queue:
                    await self._call(self._batch())
        finally:
            self._workers.remove(asyncio.current_task())

    def _batch(self):
        """Removes the first item from the queue, and those that can share a batch with it."""
        first = self.queue.popleft()
        items = [first]
        if first.key is None:
            return items
        rows = first.rows
        for item in list(self.queue):
            if item.key == first.key and rows + item.rows <= self.limits.max_batch:
                self.queue.remove(item)
                items.append(item)
                rows += item.rows
        return items

    async def _call(self, items):
        """Calls the model for all items; if that fails, for each one, so that only some fail."""
        call = self._threads.submit(self._outputs, items)
        self.calls.add(call)
        call.add_done_callback(self.calls.discard)
        try:
            results = await asyncio.wrap_future(call)
        except Exception as error:
            for item in items:
                if item.future.done():  # cancelled
                    continue
                if len(items) > 1:
                    await self._call([item])
                else:
                    item.future.set_exception(error)
        else:
            for item, result in zip(items, results):
                if not item.future.done():
                    item.future.set_result(result)

    def _outputs(self, items):
        """Makes one call and returns the outputs of each item."""
        first = items[0]
        ends = np.cumsum([item.rows for item in items])
        ROWS.labels(self.model.name).observe(ends[-1])
        if len(items) == 1:
            return [self.model.call(first.signature_name, first.inputs)]
        inputs = {
            name: np.concatenate([item.inputs[name] for item in items]) for name in first.inputs
        }
        outputs = self.model.call(first.signature_name, inputs)
        if not _has_rows(outputs, ends[-1]):
            raise ValueError("The outputs cannot be split.")
        parts = {name: np.split(array, ends[:-1]) for name, array in outputs.items()}
        return [dict(zip(parts, values)) for values in zip(*parts.values())]


def _has_rows(outputs, count):
    return all(array.shape[:1] == (count,) for array in outputs.values())
