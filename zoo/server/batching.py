"""The queue of a model: requests that agree are run as one call.

All of it happens in the event loop, but for the calls themselves, which threads make; so nothing
needs a lock.
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


@dataclasses.dataclass(eq=False)
class Item:
    """A request in the queue.

    Args:
        signature_name: of the signature it calls.
        inputs: {name: NumPy array}.
        rows: length of the inputs' first axis; or None, if it is run by itself.
        future: gets {name: NumPy array}; once it is cancelled, the request is dropped.
    """

    signature_name: str
    inputs: dict
    rows: int | None
    future: asyncio.Future
    arrived: float = dataclasses.field(default_factory=time.monotonic)

    @functools.cached_property
    def key(self):
        """Items of the same key may be run as one call; None: with no other."""
        if self.rows is None:
            return None
        shapes = {name: array.shape[1:] for name, array in self.inputs.items()}
        return self.signature_name, tuple(sorted(shapes.items()))


class Batcher:
    """Calls a model for requests, many at once where that is possible.

    Args:
        model: `zoo.server.models.Model`.
        limits: `zoo.server.limits.Limits`.
    """

    def __init__(self, model, limits):
        self.model = model
        self.limits = limits
        self._queue = collections.deque()
        self._arrival = asyncio.Event()
        self._calls = set()
        self._single = set()  # names of signatures whose outputs turned out not to have rows
        self._threads = concurrent.futures.ThreadPoolExecutor(
            limits.calls_at_once, thread_name_prefix=f"model {model.name}"
        )
        self._workers = []

    def start(self):
        """Begins to work, in the running event loop."""
        self._workers = [
            asyncio.create_task(self._work()) for _ in range(self.limits.calls_at_once)
        ]

    async def stop(self):
        """Lets the queue lie; a call that runs is not waited for."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def is_running(self):
        """Whether a thread is in a call."""
        return bool(self._calls)

    async def run(self, signature_name, inputs):
        """The outputs of a signature: {name: NumPy array}.

        If the awaiting task is cancelled before the call has begun, there will be none.

        Raises:
            RequestError: 503, if the queue is full; or what the model says against the inputs.
        """
        if len(self._queue) >= self.limits.max_queue:
            self._forget_cancelled()
        if len(self._queue) >= self.limits.max_queue:
            raise unavailable(f"The queue of model {self.model.name} is full. Try again soon.")
        rows = self._rows(signature_name, inputs)
        item = Item(signature_name, inputs, rows, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        self._arrival.set()
        return await item.future

    def _rows(self, signature_name, inputs):
        if signature_name in self._single or not self.model.signatures[signature_name].is_batched:
            return None
        lengths = {len(array) for array in inputs.values()}
        return lengths.pop() if len(lengths) == 1 else None

    def _forget_cancelled(self):
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
        """Adds to the first item those that can be run with it, waiting a moment for more."""
        first, rows = items[0], items[0].rows
        end = first.arrived + self.limits.batch_wait_ms / 1000
        while True:
            for item in list(self._queue):
                agrees = item.key == first.key and not item.future.done()
                if agrees and rows + item.rows <= self.limits.max_batch:
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
        """The outputs of each item, or its error."""
        items_left = [item for item in items if not item.future.done()]
        if len(items_left) > 1:
            # If the call fails, it shows whose fault it is when each is run alone.
            with contextlib.suppress(Exception):
                parts = self._together(items_left)
                if parts is not None:
                    return [parts.get(id(item)) for item in items]
        return [self._alone(item) for item in items]

    def _together(self, items):
        """{id of item: its outputs} of one call for all; None if outputs do not have their rows."""
        name = items[0].signature_name
        joined = {n: np.concatenate([item.inputs[n] for item in items]) for n in items[0].inputs}
        outputs = self.model.call(name, joined)
        ends = np.cumsum([item.rows for item in items])
        if any(array.shape[:1] != (ends[-1],) for array in outputs.values()):
            self._single.add(name)
            return None
        return {
            id(item): {n: array[end - item.rows : end] for n, array in outputs.items()}
            for item, end in zip(items, ends)
        }

    def _alone(self, item):
        if item.future.done():
            return None
        try:
            return self.model.call(item.signature_name, item.inputs)
        except RequestError as error:
            return error
        except Exception as error:
            return RequestError(500, f"The model failed: {type(error).__name__}: {error}")
