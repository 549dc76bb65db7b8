"""The request queue of a model: compatible requests are batched into one model call.

Only the model calls run in threads; everything else runs in the event loop, so no locks are needed.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import time

import numpy as np

from zoo.server.errors import RequestError, unavailable

_DRAIN_SECONDS = 0.05  # between two looks whether all requests are answered


@dataclasses.dataclass(eq=False)
class Item:
    """A request in the queue.

    Args:
        signature_name: name of the signature to call.
        inputs: {name: NumPy array}.
        rows: length of the inputs' first axis; None if the request cannot be batched.
        future: receives {name: NumPy array}; if it is cancelled, the request is dropped.
    """

    signature_name: str
    inputs: dict
    rows: int | None
    future: asyncio.Future
    arrived: float = dataclasses.field(default_factory=time.monotonic)

    @functools.cached_property
    def key(self):
        """Items with the same key can share a batch; None if the item cannot be batched."""
        if self.rows is None:
            return None
        shapes = {name: array.shape[1:] for name, array in self.inputs.items()}
        return self.signature_name, tuple(sorted(shapes.items()))


class Batcher:
    """Calls a model for queued requests, in batches where possible.

    Args:
        model: `zoo.server.models.Model`.
        limits: `zoo.server.limits.Limits`.
        metrics: `zoo.server.metrics.Metrics`, or None.
    """

    def __init__(self, model, limits, metrics=None):
        self.model = model
        self.limits = limits
        self._metrics = metrics
        self._held = 0
        self._queue = collections.deque()
        self._arrival = asyncio.Event()
        self._calls = set()
        self._unbatched = set()  # signatures whose outputs turned out not to have one row per input
        self._threads = concurrent.futures.ThreadPoolExecutor(
            limits.calls_at_once, thread_name_prefix=f"model {model.name}"
        )
        self._workers = []

    def start(self):
        """Starts the workers in the running event loop."""
        self._workers = [
            asyncio.create_task(self._work()) for _ in range(self.limits.calls_at_once)
        ]

    async def stop(self):
        """Stops the workers without waiting for queued requests or running calls."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @contextlib.contextmanager
    def held(self):
        """Keeps the workers for a request that will `run`, until it is answered; see `drain`."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    async def drain(self):
        """Waits until all requests that hold this are answered."""
        while self._held:
            await asyncio.sleep(_DRAIN_SECONDS)

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
        limits, signature = self.limits, self.model.signatures[signature_name]
        rows = max((len(array) for array in inputs.values() if array.ndim), default=0)
        if rows > limits.max_rows:
            raise RequestError(
                400, f"The request has {rows:,} rows. At most {limits.max_rows:,} are allowed."
            )
        if rows <= limits.max_batch or self._rows(signature_name, inputs) is None:
            return await self._queued(signature_name, inputs)
        parts = []
        for start in range(0, rows, limits.max_batch):
            part = {n: array[start : start + limits.max_batch] for n, array in inputs.items()}
            parts.append(await self._queued(signature_name, part))
        return {n: np.concatenate([part[n] for part in parts]) for n in signature.outputs}

    async def _queued(self, signature_name, inputs):
        if len(self._queue) >= self.limits.max_queue:
            self._drop_cancelled()
        if len(self._queue) >= self.limits.max_queue:
            raise unavailable(f"The queue of model {self.model.name} is full. Try again later.")
        rows = self._rows(signature_name, inputs)
        item = Item(signature_name, inputs, rows, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        self._arrival.set()
        return await item.future

    def _rows(self, signature_name, inputs):
        if (
            signature_name in self._unbatched
            or not self.model.signatures[signature_name].is_batched
        ):
            return None
        lengths = {len(array) for array in inputs.values()}
        return lengths.pop() if len(lengths) == 1 else None

    def _drop_cancelled(self):
        self._queue = collections.deque(item for item in self._queue if not item.future.done())

    async def _work(self):
        while True:
            while not self._queue:
                self._arrival.clear()
                await self._arrival.wait()
            item = self._queue.popleft()
            if item.future.done():
                continue
            items = [item]
            if item.rows is not None:
                await self._gather(items)
            await self._call(items)

    async def _gather(self, items):
        """Appends compatible items from the queue, and waits up to `batch_wait_ms` for more."""
        first, rows = items[0], items[0].rows
        end = first.arrived + self.limits.batch_wait_ms / 1000
        while True:
            for item in list(self._queue):
                matches = item.key == first.key and not item.future.done()
                if matches and rows + item.rows <= self.limits.max_batch:
                    self._queue.remove(item)
                    items.append(item)
                    rows += item.rows
            remaining = end - time.monotonic()
            if rows >= self.limits.max_batch or remaining <= 0:
                return
            self._arrival.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._arrival.wait()

    async def _call(self, items):
        call = self._threads.submit(self._results, items)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        results = await asyncio.wrap_future(call)
        for item, result in zip(items, results):
            if item.future.done():
                continue
            if isinstance(result, Exception):
                item.future.set_exception(result)
            else:
                item.future.set_result(result)

    def _results(self, items):
        """Returns the outputs or the error of each item."""
        items_left = [item for item in items if not item.future.done()]
        if len(items_left) > 1:
            # If the batch fails, running each item alone shows which one caused the error.
            with contextlib.suppress(Exception):
                parts = self._run_batch(items_left)
                if parts is not None:
                    return [parts.get(id(item)) for item in items]
        return [self._run_one(item) for item in items]

    def _run_batch(self, items):
        """Runs the items in one call: {id of item: outputs}; None if outputs cannot be split."""
        name = items[0].signature_name
        joined = {n: np.concatenate([item.inputs[n] for item in items]) for n in items[0].inputs}
        outputs = self._model_call(name, joined)
        ends = np.cumsum([item.rows for item in items])
        if any(array.shape[:1] != (ends[-1],) for array in outputs.values()):
            self._unbatched.add(name)
            return None
        return {
            id(item): {n: array[end - item.rows : end] for n, array in outputs.items()}
            for item, end in zip(items, ends)
        }

    def _run_one(self, item):
        if item.future.done():
            return None
        try:
            return self._model_call(item.signature_name, item.inputs)
        except RequestError as error:
            return error
        except Exception as error:
            return RequestError(500, f"The model raised an error: {type(error).__name__}: {error}")

    def _model_call(self, name, inputs):
        if self._metrics:
            rows = max((len(array) for array in inputs.values() if array.ndim), default=1)
            self._metrics.call(self.model.name, rows)
        return self.model.call(name, inputs)
