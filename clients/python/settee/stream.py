"""Documents mapped as they arrive: in calls of bounded size, a bounded number at a time, rows in order."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, AsyncIterable, AsyncIterator, Awaitable, Callable, Deque, Iterable, Iterator, List, Optional
from typing import Tuple, Union

from .wire import Json, encode

#: Maximum documents of one call.
BATCH_DOCS_MAX = 100

#: The size at which no further document is taken into a call, in bytes.
BATCH_BYTES_MAX = 1 << 20

#: How long a call collects documents, in seconds since its first one.
BATCH_SECONDS_MAX = 0.05

#: Maximum concurrent calls. So at most 300 documents are taken whose rows are not yet yielded: those of these calls, and
#: of the next one.
BATCHES_MAX = 2

#: The rows of one document, for each function; a row is a key and a value.
Rows = List[List[List[Any]]]
Docs = Union[Iterable[Json], AsyncIterable[Json]]


class _Batch:
    """Documents of the next call."""

    def __init__(self) -> None:
        self.docs: List[Json] = []
        self._bytes = 0

    def add(self, doc: Json) -> None:
        self._bytes += len(encode(doc))
        self.docs.append(doc)

    def is_full(self) -> bool:
        return len(self.docs) >= BATCH_DOCS_MAX or self._bytes >= BATCH_BYTES_MAX


def _batches(docs: Iterable[Json]) -> Iterator[Tuple[List[Json], bool]]:
    """Yields the documents of each call, and whether they arrived slowly. A failure of ``docs`` is raised last."""
    batch, until = _Batch(), 0.0
    try:
        for doc in docs:
            batch.add(doc)
            now = time.monotonic()
            until = until or now + BATCH_SECONDS_MAX
            if batch.is_full() or now >= until:
                yield batch.docs, not batch.is_full()
                batch, until = _Batch(), 0.0
    except Exception:
        if batch.docs:
            yield batch.docs, True
        raise
    if batch.docs:
        yield batch.docs, True


def stream(
    call: Callable[[List[Json]], Future[List[Rows]]],
    result: Callable[[Future[List[Rows]]], List[Rows]],
    docs: Iterable[Json],
) -> Iterator[Rows]:
    """Yields the rows of each document. ``call`` begins a call, ``result`` waits for it; ``docs`` is read in the caller's
    thread."""
    batches = _batches(docs)
    calls: Deque[Future[List[Rows]]] = deque()
    failure: Optional[Exception] = None
    is_over = False
    try:
        while True:
            is_slow = False
            while not is_over and not is_slow and len(calls) < BATCHES_MAX and not (calls and calls[0].done()):
                try:
                    batch, is_slow = next(batches)
                    calls.append(call(batch))
                except StopIteration:
                    is_over = True
                except Exception as error:
                    is_over, failure = True, error
            if not calls:
                break
            yield from result(calls[0])
            calls.popleft()
        if failure:
            raise failure
    finally:
        for waiting in calls:
            waiting.cancel()


async def async_stream(call: Callable[[List[Json]], Awaitable[List[Rows]]], docs: Docs) -> AsyncIterator[Rows]:
    """Yields the rows of each document."""
    calls = _Calls(call)
    reading = asyncio.ensure_future(calls.read(docs))
    try:
        while True:
            rows = await calls.next()
            if rows is None:
                break
            for row in rows:
                yield row
            calls.given()
        await reading
    finally:
        reading.cancel()
        calls.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await reading


class _Calls:
    """The calls of a stream, in the order of their documents."""

    def __init__(self, call: Callable[[List[Json]], Awaitable[List[Rows]]]):
        self._call, self._batch = call, _Batch()
        self._calls: Deque[asyncio.Future[List[Rows]]] = deque()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._is_due, self._is_over = False, False
        #: Set when another call has begun, or all documents are read.
        self._begun = asyncio.Event()
        #: Set when the next batch has room.
        self._room = asyncio.Event()

    async def read(self, docs: Docs) -> None:
        try:
            if isinstance(docs, AsyncIterable):
                async for doc in docs:
                    await self._take(doc)
            else:
                for doc in docs:
                    await self._take(doc)
        except asyncio.CancelledError:
            # The stream has ended: nobody wants the rows.
            self._batch = _Batch()
            raise
        finally:
            self._is_over = True
            self._send(is_due=True)
            self._begun.set()

    async def _take(self, doc: Json) -> None:
        self._batch.add(doc)
        if len(self._batch.docs) == 1:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS_MAX, self._send, True)
        self._send()
        while self._batch.is_full():
            self._room.clear()
            await self._room.wait()

    def _send(self, is_due: bool = False) -> None:
        """Begins the next call if it is full or due and fewer than ``BATCHES_MAX`` are in flight."""
        self._is_due = self._is_due or is_due
        batch = self._batch
        if not batch.docs or not (self._is_due or batch.is_full()) or len(self._calls) >= BATCHES_MAX:
            return
        if self._timer:
            self._timer.cancel()
        self._batch, self._is_due = _Batch(), self._is_over
        self._calls.append(asyncio.ensure_future(self._call(batch.docs)))
        self._begun.set()
        self._room.set()

    async def next(self) -> Optional[List[Rows]]:
        """Returns the rows of the next call, None after the last."""
        while not self._calls:
            if self._is_over:
                return None
            self._begun.clear()
            await self._begun.wait()
        return await self._calls[0]

    def given(self) -> None:
        """Called when the rows of a call were yielded."""
        self._calls.popleft()
        self._send()

    def cancel(self) -> None:
        if self._timer:
            self._timer.cancel()
        for waiting in self._calls:
            waiting.cancel()
