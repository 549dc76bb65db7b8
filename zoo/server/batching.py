"""The request queue of a model: compatible requests are batched into one model call.

Only the model calls run in threads; everything else runs in the event loop, so no locks are needed.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import time

import numpy as np

from zoo.server import metrics
from zoo.server.errors import bad_request, unavailable

_DRAIN_SECONDS = 0.05  # between two checks whether all requests are answered


@dataclasses.dataclass(eq=False)
class Item:
    """A request in the queue.

    Args:
        signature_name: name of the signature to call.
        inputs: {name: NumPy array}.
        rows: length of the inputs' first axis.
        key: items with the same key can share a batch; None if the item cannot be batched.
        future: receives {name: NumPy array}; if it is cancelled, the request is dropped.
    """

    signature_name: str
    inputs: dict
    rows: int
    key: tuple | None
    future: asyncio.Future
    arrived: float = dataclasses.field(default_factory=time.monotonic)


class Batcher:
    """Calls a model for queued requests, in batches where possible.

    Args:
        model: `zoo.server.models.Model`.
        limits: `zoo.server.limits.Limits`.

    Attributes:
        in_flight: number of requests that are being handled, and may `run`; the user counts them.
    """

    def __init__(self, model, limits):
        self.model = model
        self.limits = limits
        self.in_flight = 0
        self._queue = collections.deque()
        self._arrival = asyncio.Event()
        self._workers = set()  # tasks, as long as there are requests in the queue
        self._slow = 0  # workers that wait for a slow call
        self._calls = set()
        self._unbatched = set()  # signatures whose outputs turned out not to have one row per input
        self._threads = concurrent.futures.ThreadPoolExecutor(
            limits.calls_at_once, thread_name_prefix=f"model {model.name}"
        )

    async def stop(self):
        """Waits until no request is `in_flight`, and ends the threads."""
        while self.in_flight:
            await asyncio.sleep(_DRAIN_SECONDS)
        self._threads.shutdown(wait=False)

    @property
    def queue_length(self):
        """Number of queued requests."""
        return len(self._queue)

    @property
    def is_running(self):
        """Whether a model call is running."""
        return bool(self._calls)

    async def run(self, signature_name, inputs):
        """Queues a request and returns the outputs of the signature: {name: NumPy array}.

        A request of more than `max_batch` rows takes several calls. After each it queues again
        behind the others. If the awaiting task is cancelled, the calls not yet started are dropped.

        Raises:
            RequestError: 400 if the request has too many rows; 503 if the queue is full; or the
                error of the model.
        """
        limits, rows = self.limits, rows_of(inputs)
        if rows > limits.max_rows:
            raise bad_request(
                f"The request has {rows:,} rows. At most {limits.max_rows:,} are allowed."
            )
        if rows <= limits.max_batch or self._key(signature_name, inputs) is None:
            return await self._queued(signature_name, inputs)
        parts = []
        for start in range(0, rows, limits.max_batch):
            part = {n: array[start : start + limits.max_batch] for n, array in inputs.items()}
            parts.append(await self._queued(signature_name, part))
            if signature_name in self._unbatched:
                return await self._queued(signature_name, inputs)
        return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}

    async def _queued(self, signature_name, inputs):
        if len(self._queue) >= self.limits.max_queue:
            raise unavailable(f"The queue of model {self.model.name} is full. Try again later.")
        key, future = self._key(signature_name, inputs), asyncio.get_running_loop().create_future()
        item = Item(signature_name, inputs, rows_of(inputs), key, future)
        self._queue.append(item)
        self._arrival.set()
        self._start_worker()
        try:
            return await future
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):  # not in the queue: its call has begun
                self._queue.remove(item)
            raise

    def _key(self, name, inputs):
        is_batched = self.model.signatures[name].is_batched and name not in self._unbatched
        if not is_batched or len({len(array) for array in inputs.values()}) != 1:
            return None
        return name, tuple(sorted((n, array.shape[1:]) for n, array in inputs.items()))

    def _start_worker(self):
        """Starts a worker, unless there is one or all that there may be wait for slow calls."""
        if self._slow == len(self._workers) < self.limits.calls_at_once:
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self):
        try:
            # unless another has taken over while this one waited for a slow call
            while self._queue and len(self._workers) - self._slow == 1:
                first = self._queue.popleft()
                if not first.future.done():
                    await self._call([first] if first.key is None else await self._batch(first))
        finally:
            self._workers.remove(asyncio.current_task())

    async def _batch(self, first):
        """Takes items that fit the first from the queue; waits up to `batch_wait_ms` for more."""
        items, rows = [first], first.rows
        end = first.arrived + self.limits.batch_wait_ms / 1000
        while True:
            for item in list(self._queue):
                fits = item.key == first.key and rows + item.rows <= self.limits.max_batch
                if fits and not item.future.done():
                    self._queue.remove(item)
                    items.append(item)
                    rows += item.rows
            remaining = end - time.monotonic()
            if rows >= self.limits.max_batch or remaining <= 0:
                return items
            self._arrival.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._arrival.wait()

    async def _call(self, items):
        """Calls the model for all items; if that fails, for each, which shows the cause."""
        items = [item for item in items if not item.future.done()]
        if not items:
            return
        call = self._threads.submit(self._outputs, items)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            results = await self._result(call)
        except Exception as error:
            if len(items) > 1:
                for item in items:
                    await self._call([item])
            elif not items[0].future.done():
                items[0].future.set_exception(error)
        else:
            for item, result in zip(items, results):
                if not item.future.done():
                    item.future.set_result(result)

    async def _result(self, call):
        """Waits for a call; if it is slow, others can be made beside it, as it cannot be ended."""
        future = asyncio.wrap_future(call)
        await asyncio.wait([future], timeout=self.limits.slow_call)
        if not future.done():
            self._slow += 1
            self._start_worker()
            await asyncio.wait([future])
            self._slow -= 1
        return future.result()

    def _outputs(self, items):
        """Makes one call and returns the outputs of each item."""
        name, inputs = items[0].signature_name, items[0].inputs
        if len(items) > 1:
            inputs = {n: np.concatenate([item.inputs[n] for item in items]) for n in inputs}
        ends = np.cumsum([item.rows for item in items])
        metrics.ROWS.labels(self.model.name).observe(ends[-1])
        outputs = self.model.call(name, inputs)
        if any(array.shape[:1] != (ends[-1],) for array in outputs.values()):
            self._unbatched.add(name)
        if len(items) == 1:
            return [outputs]
        if name in self._unbatched:
            raise ValueError("The outputs cannot be split.")
        return [
            {n: array[end - item.rows : end] for n, array in outputs.items()}
            for item, end in zip(items, ends)
        ]


def rows_of(inputs):
    """Number of rows of {name: NumPy array}: the length of the longest first axis."""
    return max((len(array) for array in inputs.values() if array.ndim), default=1)
