"""The clients: :class:`AsyncClient` for asyncio, :class:`Client` for all other programs."""
# The service's answers are JSON, with the types declared by the methods.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import os
import random
import re
import selectors
import ssl
import threading
import time
from dataclasses import replace
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generic,
    Iterable,
    Iterator,
    List,
    Literal,
    Optional,
    Sequence,
    Set,
    Tuple,
    Type,
    TypedDict,
    TypeVar,
    Union,
    overload,
)
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from .errors import BadRequest, CallTimeout, ClientClosed, ProtocolError, Unavailable, mistake, service_error
from .http import HttpTransport
from .kinds import Awaits, Waits, function_call, method
from .results import Down, Health, Jobs, Killed, Pools, Processes, Report, Response, Rewritten, Tenants, Verdict
from .stream import Docs, Rows, async_stream, stream
from .wire import Connection, Json, SocketTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Coroutine = Coroutine[Any, Any, Any]
_Run = Callable[[_Coroutine], Any]

#: The reply to an attempt, and for ``get_proc`` its connection.
_Attempt = Tuple[Json, Optional[Connection]]

_T = TypeVar("_T")
#: The result of list functions: :class:`Chunks` or :class:`AsyncChunks`.
_ListT = TypeVar("_ListT")
#: Documents whose rows are returned together.
DocList = Union[List[Json], Tuple[Json, ...]]
_C = TypeVar("_C", bound="Client")
_A = TypeVar("_A", bound="AsyncClient")

#: How long a call is retried by default (``retry_for``) when the service is unreachable or the connection is lost before
#: the reply, in seconds since the first failure: longer than a restart, most of which is ``shutdown_grace``.
RETRY_SECONDS_MAX = 30.0

#: Delay before the first retry, in seconds. It doubles with each retry; a random part of up to half is subtracted, so
#: that many clients do not reconnect at once.
BACKOFF_SECONDS_FIRST = 0.1

#: Maximum delay between retries, in seconds.
BACKOFF_SECONDS_MAX = 1.0

#: How long a call may take including retries, in seconds.
CALL_SECONDS_MAX = 300.0


def _present(**members: Any) -> Json:
    return {name: value for name, value in members.items() if value is not None}


def _milliseconds(seconds: Optional[float]) -> Optional[int]:
    if seconds is None:
        return None
    if not seconds > 0:
        raise mistake(f"'timeout' must be more than 0 seconds, not {seconds}")
    return max(1, round(seconds * 1000))


def _unless_stopping(reply: Json) -> Json:
    """Returns a reply, but raises a stopping service's error, so that a retry may reach its successor."""
    error = service_error(reply["error"]) if "error" in reply else None
    if isinstance(error, Unavailable):
        raise error
    return reply


def _value(reply: Json, reported: bool = False) -> Any:
    """Returns the value of a reply, or raises its error."""
    if "error" in reply:
        error = service_error(reply["error"])
        error.report = Report.of(reply, None) if reported else None
        raise error
    if "ok" not in reply:
        raise ProtocolError.because("a reply has neither 'ok' nor 'error'")
    return Report.of(reply, reply["ok"]) if reported else reply["ok"]


_Next = Callable[[], Coroutine[Any, Any, Optional[str]]]


class AsyncChunks:
    """The result of a list function: the ``response``, and an iterator over the pieces of its body."""

    def __init__(self, response: Response, next_chunk: _Next, close: Callable[[], None]):
        self.response, self._next, self.close = response, next_chunk, close

    def __aiter__(self) -> AsyncChunks:
        return self

    async def __anext__(self) -> str:
        chunk = await self._next()
        if chunk is None:
            self.close()
            raise StopAsyncIteration
        return chunk


class Chunks:
    """The result of a list function: the ``response``, and an iterator over the pieces of its body."""

    def __init__(self, run: _Run, response: Response, next_chunk: _Next, close: Callable[[], None]):
        self.response, self._run, self._next, self.close = response, run, next_chunk, close

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> str:
        chunk: Optional[str] = self._run(self._next())
        if chunk is None:
            self.close()
            raise StopIteration
        return chunk


class _Lent:
    """A process that this client holds."""

    def __init__(self, connection: Connection, lent: Json, core: _Core):
        self.token: str = lent["proc"]
        self.pool: Optional[str] = lent.get("pool")
        self.lang: Optional[str] = lent.get("lang")
        self.os_pid: Optional[int] = lent.get("os_pid")
        self.config: Json = lent.get("config") or {}
        #: Why the service revoked the process: an object with ``name`` and ``reason``; None while it has not.
        self.down: Optional[Down] = None
        self._connection, self._core, self._run, self._abandoned = connection, core, core.run, False
        connection.downs[self.token] = functools.partial(setattr, self, "down")

    @method
    def reset(self) -> Any:
        """Makes the process forget its functions; must be the first prompt."""
        return self._ask(["reset", self.config])

    @method
    def prompt(self, command: Sequence[Any], timeout: Optional[float] = None) -> Any:
        """Sends a command, such as ``["map_doc", doc]``, and returns the answer of the process."""
        return self._ask(command, timeout)

    @method
    def set_timeout(self, timeout: float) -> bool:
        """Sets the timeout of prompts without their own, in seconds."""
        return self._run(self._call("set_timeout", timeout_ms=_milliseconds(timeout)))

    @method
    def ret_proc(self, status: Literal["ok", "fail"] = "ok") -> bool:
        """Returns the process; with ``fail`` it is not used again. False if this client does not hold it."""
        return self._run(self._ret_proc(status))

    def _ask(self, command: Sequence[Any], timeout: Optional[float] = None) -> Any:
        try:
            return self._run(self._prompt(command, timeout))
        except (KeyboardInterrupt, SystemExit):
            # The process may be returned before the event loop has cancelled the prompt.
            self._abandoned = True
            raise

    async def _prompt(self, command: Sequence[Any], timeout: Optional[float]) -> Any:
        try:
            reply = await self._reply("prompt", data=command, timeout_ms=_milliseconds(timeout))
        except (asyncio.CancelledError, CallTimeout):
            self._abandoned = True
            raise
        return _value(reply)

    async def _ret_proc(self, status: str) -> bool:
        self._connection.downs.pop(self.token, None)
        try:
            # A process still busy for a caller who gave up must not be lent again.
            return bool(await self._call("ret_proc", status="fail" if self._abandoned else status))
        except (Unavailable, ClientClosed):
            # The service reclaims the processes of a lost connection.
            return False

    async def _call(self, name: str, **arguments: Any) -> Any:
        return _value(await self._reply(name, **arguments))

    async def _reply(self, name: str, **arguments: Any) -> Json:
        arguments = _present(proc=self.token, **arguments)
        reply: Json = await self._core.bounded(name, self._connection.call(name, arguments))
        return reply


class Proc(_Lent, Waits):
    """A process that a :class:`Client` holds."""


class AsyncProc(_Lent, Awaits):
    """A process that an :class:`AsyncClient` holds. Its methods are awaited."""


class _Core:
    """Common to both clients: makes calls, retries them, and converts replies to values, reports and errors."""

    def __init__(
        self,
        transport: Any,
        retry_for: Optional[float],
        seconds: float,
        run: _Run,
        chunks: Callable[..., Any],
    ):
        self.transport, self._seconds, self.run, self._chunks = transport, seconds, run, chunks
        self._process = os.getpid()
        self._retries_errors = retry_for is not None
        self._retry_for = RETRY_SECONDS_MAX if retry_for is None else retry_for
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await self.transport.close()

    async def call(self, name: str, arguments: Json) -> Any:
        return _value(await self._reply(name, False, self.transport.call, name, arguments, False))

    async def manage(self, method: str, path: str, **query: Any) -> Any:
        path = f"{path}?{urlencode(_present(**query))}"
        return _value(await self._reply(f"{method} {path}", method == "GET", self.transport.manage, method, path))

    async def _reply(self, name: str, again: bool, ask: Callable[..., Awaitable[Json]], *request: Any) -> Json:
        async def attempt() -> _Attempt:
            return _unless_stopping(await ask(*request)), None

        reply: Json
        reply, _ = await self.bounded(name, self._persist(attempt, again))
        return reply

    async def function(self, name: str, arguments: Json, options: Options) -> Any:
        """Runs functions. They have no side effects, so the call is retried if the connection is lost."""
        arguments = {**arguments, **_options(**options)}
        # A pool or a group has its own language.
        if "lang" in arguments and not (arguments["lang"] or arguments["pool"] or arguments["group"]):
            arguments["lang"] = "javascript"
        arguments = _present(**arguments)
        return _value(await self._reply(name, True, self.transport.call, name, arguments), "report" in arguments)

    async def bounded(self, name: str, reply: _Coroutine) -> Any:
        if self._closed:
            reply.close()
            raise ClientClosed
        if self._process != os.getpid():
            reply.close()
            raise mistake(f"the client belongs to process {self._process}, which forked: {os.getpid()} needs its own")
        try:
            return await asyncio.wait_for(reply, self._seconds)
        except Unavailable:
            if self._closed:
                raise ClientClosed from None
            raise
        except asyncio.TimeoutError:
            reason = f"'{name}' took longer than call_seconds, {self._seconds} s"
            details = {"name": "timeout", "reason": reason, "phase": "reply", "fault": "settee", "retry": True}
            raise service_error(details) from None

    async def _persist(self, attempt: Callable[[], Awaitable[_Attempt]], again: bool) -> _Attempt:
        """Retries until a reply is final or the time is up. A call that must not
        be made twice is retried only if it was not sent."""
        pause, until = BACKOFF_SECONDS_FIRST, None
        while True:
            lost: Optional[Unavailable] = None
            outcome: _Attempt = ({}, None)
            wait: Optional[float] = 0.0
            try:
                outcome = await attempt()
                wait = self._wait_after(outcome[0], again)
            except Unavailable as error:
                if self._closed or not error.retry or (error.details["sent"] and not again):
                    raise
                lost = error
            now = time.monotonic()
            until = now + self._retry_for if until is None else until
            if wait is None or now + wait >= until:
                if lost:
                    raise lost
                return outcome
            await asyncio.sleep(min(max(wait, pause * random.uniform(0.5, 1)), until - now))
            if self._closed:
                raise ClientClosed
            pause = min(2 * pause, BACKOFF_SECONDS_MAX)

    def _wait_after(self, reply: Json, again: bool) -> Optional[float]:
        """Delay before a retry after a reply, in seconds; None for no retry."""
        error = reply.get("error")
        if not (self._retries_errors and again and isinstance(error, dict) and error.get("retry")):
            return None
        return float(error.get("retry_after_ms") or 0) / 1000

    async def map(
        self,
        funs: Sequence[Any],
        docs: Sequence[Json],
        *,
        lang: Optional[str] = None,
        db: Optional[str] = None,
        lib: Optional[Json] = None,
        **options: Unpack[Options],
    ) -> Any:
        return await self.function("map_docs", {"funs": funs, "docs": docs, "lang": lang, "db": db, "lib": lib}, options)

    async def select(self, selector: Json, docs: Sequence[Json], options: Options) -> Any:
        definition = {"fields": {"_id": "asc"}, "partial_filter_selector": selector}
        outcome = await self.function("map_docs", {"lang": "query", "funs": [definition], "docs": docs}, options)
        rows = outcome.value if isinstance(outcome, Report) else outcome
        found = [doc for doc, [row] in zip(docs, rows) if row]
        if not found:
            await self._check(selector, options)
        return replace(outcome, value=found) if isinstance(outcome, Report) else found

    async def _check(self, selector: Json, options: Options) -> None:
        """Raises for an invalid selector, which ``map_docs`` accepts but which matches nothing."""
        ddoc = {"_id": "_design/selector", "language": "query", "validate_doc_update": selector}
        await self.function("validate_docs", {"db": "selector", "ddoc": ddoc, "docs": [{"newDoc": {}}]}, options)

    def streams(self, options: Options) -> bool:
        return bool(self.transport.streams and not _options(**options)["report"])

    async def list(self, arguments: Json, rows: Iterable[Json], options: Options) -> Any:
        if self.streams(options):
            arguments = _present(**arguments, **_options(**options))
            stream = await self.transport.list(arguments, rows)
            return self._chunks(stream.response, stream.next, stream.close)
        outcome = await self.function("list", {**arguments, "rows": rows}, options)
        made = outcome.value if isinstance(outcome, Report) else outcome
        chunks = self._chunks(made["response"], _async_next(made["chunks"]), lambda: None)
        return replace(outcome, value=chunks) if isinstance(outcome, Report) else chunks

    async def get_proc(self, arguments: Json, kind: Callable[[Connection, Json, _Core], _T]) -> _T:
        async def lend() -> _Attempt:
            connection = await self.transport.connection()
            return _unless_stopping(await connection.call("get_proc", arguments)), connection

        reply, connection = await self.bounded("get_proc", self._persist(lend, again=True))
        return kind(connection, _value(reply), self)


def _async_next(values: Iterable[str]) -> _Next:
    rest = iter(values)

    async def next_value() -> Optional[str]:
        return next(rest, None)

    return next_value


class Options(TypedDict, total=False):
    """Options of every call that runs functions, besides ``report``, which requests a :class:`Report`."""

    #: How long it may take to get a process, and how long each answer may take, in seconds.
    timeout: Optional[float]
    #: The pool, or the group of pools, that lends the process.
    pool: Optional[str]
    group: Optional[str]
    request_id: Optional[str]


class MapOptions(Options, total=False):
    """Options of :meth:`Client.map`."""

    lang: str
    db: Optional[str]
    #: Modules by name that the functions may require.
    lib: Optional[Json]


class LeaseOptions(TypedDict, total=False):
    """Options of ``get_proc`` and ``lease``."""

    db: Optional[str]
    ddoc: Optional[Json]
    pool: Optional[str]
    group: Optional[str]
    any: Optional[bool]
    lane: Optional[str]
    timeout: Optional[float]


def _options(
    *,
    timeout: Optional[float] = None,
    pool: Optional[str] = None,
    group: Optional[str] = None,
    report: bool = False,
    request_id: Optional[str] = None,
) -> Json:
    """Converts :class:`Options` to the service's names and units."""
    times = _milliseconds(timeout)
    return {"timeout_ms": times, "pool": pool, "group": group, "report": report or None, "request_id": request_id}


class _Calls(Generic[_ListT]):
    """The calls, with the arguments of docs/socket.md. Each also takes :class:`Options`, and ``report``."""

    _core: _Core
    _run: _Run

    def _function(self, call: str, options: Options, /, **arguments: Any) -> Any:
        return self._run(self._core.function(call, arguments, options))

    @function_call
    def reduce(
        self,
        funs: Sequence[str],
        rows: Sequence[Any],
        *,
        lang: Optional[str] = None,
        db: Optional[str] = None,
        finalize: Optional[bool] = None,
        context: Optional[str] = None,
        **options: Unpack[Options],
    ) -> List[Any]:
        """A result for each function, from rows ``[[key, id], value]``."""
        more = {"db": db, "finalize": finalize, "context": context}
        return self._function("reduce", options, funs=funs, rows=rows, lang=lang, **more)

    @function_call
    def rereduce(
        self,
        funs: Sequence[str],
        values: Sequence[Any],
        *,
        lang: Optional[str] = None,
        db: Optional[str] = None,
        finalize: Optional[bool] = None,
        context: Optional[str] = None,
        **options: Unpack[Options],
    ) -> List[Any]:
        """A result for each function, from earlier results: rows with a value for each function."""
        more = {"db": db, "finalize": finalize, "context": context}
        return self._function("rereduce", options, funs=funs, values=values, lang=lang, **more)

    @function_call
    def compile(
        self,
        fun: Any,
        *,
        lang: Optional[str] = None,
        db: Optional[str] = None,
        name: str = "function",
        type: Optional[str] = None,
        **options: Unpack[Options],
    ) -> Literal[True]:
        """Returns True; raises :class:`settee.CompilationError` if the function does not compile."""
        return self._function("try_compile", options, fun=fun, lang=lang, db=db, name=name, type=type)

    @function_call
    def select(self, selector: Json, docs: Sequence[Json], **options: Unpack[Options]) -> List[Json]:
        """Returns the documents that match a Mango selector. Each needs an ``_id``; design documents never match."""
        return self._run(self._core.select(selector, docs, options))

    @function_call
    def filter(
        self,
        db: str,
        ddoc: Json,
        name: str,
        docs: Sequence[Json],
        *,
        req: Optional[Json] = None,
        **options: Unpack[Options],
    ) -> List[bool]:
        """Returns, for each document, whether it passes a filter function."""
        return self._function("filter_docs", options, db=db, ddoc=ddoc, name=name, docs=docs, req=req)

    @function_call
    def filter_view(
        self, db: str, ddoc: Json, name: str, docs: Sequence[Json], **options: Unpack[Options]
    ) -> List[bool]:
        """Returns, for each document, whether a view's map function emits something."""
        return self._function("filter_view", options, db=db, ddoc=ddoc, name=name, docs=docs)

    @function_call
    def validate(
        self,
        db: str,
        ddoc: Json,
        edits: Sequence[Json],
        *,
        user_ctx: Optional[Json] = None,
        sec_obj: Optional[Json] = None,
        **options: Unpack[Options],
    ) -> List[Verdict]:
        """Returns, for each ``{"newDoc", "oldDoc"}``, True, ``{"forbidden": M}`` or ``{"unauthorized": M}``."""
        more = {"userCtx": user_ctx, "secObj": sec_obj}
        return self._function("validate_docs", options, db=db, ddoc=ddoc, docs=edits, **more)

    @function_call
    def show(
        self,
        db: str,
        ddoc: Json,
        name: str,
        doc: Optional[Json] = None,
        *,
        req: Optional[Json] = None,
        **options: Unpack[Options],
    ) -> Response:
        """The response of a show function: ``code``, ``headers``, ``body`` and so on."""
        return self._function("show", options, db=db, ddoc=ddoc, name=name, doc=doc, req=req)

    @function_call
    def update(
        self,
        db: str,
        ddoc: Json,
        name: str,
        doc: Optional[Json] = None,
        *,
        req: Optional[Json] = None,
        **options: Unpack[Options],
    ) -> Tuple[Optional[Json], Response]:
        """Returns ``[doc or None, response]``; writing the document is up to the caller."""
        return self._function("update", options, db=db, ddoc=ddoc, name=name, doc=doc, req=req)

    @function_call
    def rewrite(self, db: str, ddoc: Json, req: Json, **options: Unpack[Options]) -> Optional[Rewritten]:
        """The rewritten request; None if no rule matches."""
        return self._function("rewrite", options, db=db, ddoc=ddoc, req=req)

    @function_call
    def list(
        self,
        db: str,
        ddoc: Json,
        name: str,
        rows: Iterable[Json],
        *,
        head: Optional[Json] = None,
        req: Optional[Json] = None,
        **options: Unpack[Options],
    ) -> _ListT:
        """An iterator over the pieces of the body, with the ``response``. Over HTTP, ``rows`` are sent as they are
        produced, from a thread, and pieces arrive as they are made."""
        arguments = {"db": db, "ddoc": ddoc, "name": name, "head": head or {}, "req": req or {}}
        # Producing the rows may call this client, so it does not run in the client's event loop.
        rows = rows if self._core.streams(options) else [*rows]
        return self._run(self._core.list(arguments, rows, options))

    @method
    def ps(self, pool: Optional[str] = None) -> Processes:
        """The state of each process: ``total_rows`` and ``procs``, the longest running first."""
        return self._run(self._core.manage("GET", "/_procs", pool=pool))

    @method
    def kill(self, name: str, *, now: bool = False) -> Killed:
        """Ends a process, by its ``name`` in :meth:`ps`: kills it if it is answering or ``now`` is set, else stops it
        gracefully. Returns ``how``, and ``proc``, the process as it was before."""
        if not re.fullmatch(r"[^/]+/\d+", name):
            raise mistake(f"no process is named {name!r}: write it as POOL/NUMBER, as ps does")
        return self._run(self._core.manage("DELETE", f"/_procs/{quote(name)}", now="true" if now else None))

    @method
    def health(self, *, fleet: bool = False) -> Health:
        """The service's problems and their remedies: ``status`` and ``problems``. With ``fleet``, the worst
        ``status`` of all daemons, and each one's report: ``daemons``."""
        return self._run(self._core.manage("GET", "/_health", fleet="true" if fleet else None))

    @method
    def pools(self) -> Pools:
        """The state of each pool: ``total_rows`` and ``pools``."""
        return self._run(self._core.manage("GET", "/_pools"))

    @method
    def tenants(
        self, *, db: Optional[str] = None, sort: Optional[str] = None, limit: Optional[int] = None
    ) -> Tenants:
        """The cost of each database since counting began: ``since``, ``total_rows`` and ``tenants``."""
        return self._run(self._core.manage("GET", "/_tenants", db=db, sort=sort, limit=limit))

    @method
    def jobs(
        self,
        *,
        states: Optional[str] = None,
        match: Optional[str] = None,
        source: Optional[str] = None,
        target: Optional[str] = None,
        reason: Optional[str] = None,
        daemon: Optional[str] = None,
        sort: Optional[str] = None,
        limit: Optional[int] = None,
        skip: Optional[int] = None,
    ) -> Jobs:
        """Replications: ``total_rows`` and ``jobs``. ``states`` are comma-separated names; ``match`` (the id of the
        document or the job), ``source``, ``target``, ``reason`` and ``daemon`` are patterns with ``*`` and ``?``."""
        patterns = {"match": match, "source": source, "target": target, "reason": reason, "daemon": daemon}
        query = {"states": states, "sort": sort, "limit": limit, "skip": skip, **patterns}
        return self._run(self._core.manage("GET", "/_scheduler/jobs", **query))

    @method
    def call(self, name: str, /, **arguments: Any) -> Any:
        """Makes any call of docs/socket.md, by its own name and with its own arguments. Not retried if the connection
        is lost."""
        return self._run(self._core.call(name, arguments))


def _lease(
    lang: Optional[str],
    *,
    db: Optional[str] = None,
    ddoc: Optional[Json] = None,
    pool: Optional[str] = None,
    group: Optional[str] = None,
    any: Optional[bool] = None,
    lane: Optional[str] = None,
    timeout: Optional[float] = None,
) -> Json:
    """Builds the arguments of ``get_proc``."""
    more = {"db": db, "ddoc": ddoc, "pool": pool, "group": group, "any": any, "lane": lane}
    return _present(lang=lang, timeout_ms=_milliseconds(timeout), **more)


def _no_report(options: Json) -> None:
    if options.get("report"):
        raise mistake("documents from an iterable have no report: pass a list")


class AsyncClient(_Calls[AsyncChunks], Awaits):
    """A client for asyncio: calls are awaited and may be concurrent. Use it in one event loop."""

    def __init__(
        self,
        address: Union[str, "os.PathLike[str]"],
        *,
        user: Optional[str] = None,
        password: Optional[str] = None,
        ssl: Optional[ssl.SSLContext] = None,
        retry_for: Optional[float] = None,
        call_seconds: float = CALL_SECONDS_MAX,
    ) -> None:
        transport = _transport(address, user, password, ssl, call_seconds)
        self._run = lambda coroutine: coroutine
        self._core = _Core(transport, retry_for, call_seconds, self._run, AsyncChunks)

    # Overlaps: a list or tuple is an iterable too.
    @overload
    def map(  # type: ignore[overload-overlap]
        self, funs: Sequence[Any], docs: DocList, **options: Unpack[MapOptions]
    ) -> Coroutine[Any, Any, List[Rows]]: ...

    @overload
    def map(
        self, funs: Sequence[Any], docs: DocList, *, report: Literal[True], **options: Unpack[MapOptions]
    ) -> Coroutine[Any, Any, Report[List[Rows]]]: ...

    @overload
    def map(self, funs: Sequence[Any], docs: Docs, **options: Unpack[MapOptions]) -> AsyncIterator[Rows]: ...

    def map(self, funs: Sequence[Any], docs: Docs, **options: Any) -> Any:
        """For each document, the ``[key, value]`` rows of each function. Awaited for a list of documents; for any other
        iterable, synchronous or not, returns an async iterator that yields results as documents arrive."""

        def call(batch: Sequence[Json]) -> _Coroutine:
            return self._core.map(funs, batch, **options)

        if isinstance(docs, (list, tuple)):
            return call(docs)
        _no_report(options)
        return async_stream(call, docs)

    async def get_proc(self, lang: Optional[str] = None, **options: Unpack[LeaseOptions]) -> AsyncProc:
        """Borrows a process, to be returned with :meth:`AsyncProc.ret_proc`. Its first prompt is ``reset``."""
        return await self._core.get_proc(_lease(lang, **options), AsyncProc)

    @contextlib.asynccontextmanager
    async def lease(
        self, lang: Optional[str] = None, **options: Unpack[LeaseOptions]
    ) -> AsyncIterator[AsyncProc]:
        """Borrows a process for a block, as :meth:`get_proc` does, and resets it."""
        proc = await self.get_proc(lang, **options)
        try:
            await proc.reset()
            yield proc
        finally:
            await proc.ret_proc()

    async def close(self) -> None:
        await self._core.close()

    async def __aenter__(self: _A) -> _A:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()


class Client(_Calls[Chunks], Waits):
    """A client with blocking calls. Threads may share it: their concurrent calls use one connection.

    It runs an event loop in its own thread. After a fork, the child recreates both and its connections; processes
    borrowed before stay with the parent.
    """

    def __init__(
        self,
        address: Union[str, "os.PathLike[str]"],
        *,
        user: Optional[str] = None,
        password: Optional[str] = None,
        ssl: Optional[ssl.SSLContext] = None,
        retry_for: Optional[float] = None,
        call_seconds: float = CALL_SECONDS_MAX,
    ) -> None:
        self._transport = functools.partial(_transport, address, user, password, ssl, call_seconds)
        self._terms = retry_for, call_seconds
        self._closed = False
        self._begin()
        _CLIENTS.add(self)

    def _begin(self) -> None:
        self._core = _Core(self._transport(), *self._terms, self._run, functools.partial(Chunks, self._run))
        self._loop = _new_event_loop()
        #: Started by the first call.
        self._thread = threading.Thread(target=self._loop.run_forever, name="settee", daemon=True)
        #: Held while a call is handed to the loop, and while the client is marked as closed.
        self._handing = threading.Lock()

    def _forked(self) -> None:
        _LEFT.append((self._core, self._loop))
        self._begin()

    def _hand(self, coroutine: _Coroutine) -> concurrent.futures.Future[Any]:
        """Begins a call, and returns its future."""
        with self._handing:
            if self._closed:
                coroutine.close()
                raise ClientClosed
            if self._thread.ident is None:
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run(self, coroutine: _Coroutine) -> Any:
        return self._result(self._hand(coroutine))

    def _result(self, waiting: concurrent.futures.Future[_T]) -> _T:
        try:
            return waiting.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed from None
        finally:
            # An interrupt cancels the call. A completed one is unaffected.
            waiting.cancel()

    @overload
    def map(  # type: ignore[overload-overlap]
        self, funs: Sequence[Any], docs: DocList, **options: Unpack[MapOptions]
    ) -> List[Rows]: ...

    @overload
    def map(
        self, funs: Sequence[Any], docs: DocList, *, report: Literal[True], **options: Unpack[MapOptions]
    ) -> Report[List[Rows]]: ...

    @overload
    def map(self, funs: Sequence[Any], docs: Iterable[Json], **options: Unpack[MapOptions]) -> Iterator[Rows]: ...

    def map(self, funs: Sequence[Any], docs: Iterable[Json], **options: Any) -> Any:
        """For each document, the ``[key, value]`` rows of each function: a list for a list of documents. For any
        other iterable, returns an iterator that yields results as documents arrive."""

        def call(batch: Sequence[Json]) -> _Coroutine:
            return self._core.map(funs, batch, **options)

        if isinstance(docs, (list, tuple)):
            return self._run(call(docs))
        _no_report(options)
        return stream(lambda batch: self._hand(call(batch)), self._result, docs)

    def get_proc(self, lang: Optional[str] = None, **options: Unpack[LeaseOptions]) -> Proc:
        """Borrows a process, to be returned with :meth:`Proc.ret_proc`. Its first prompt is ``reset``."""
        return self._run(self._core.get_proc(_lease(lang, **options), Proc))

    @contextlib.contextmanager
    def lease(self, lang: Optional[str] = None, **options: Unpack[LeaseOptions]) -> Iterator[Proc]:
        """Borrows a process for a block, as :meth:`get_proc` does, and resets it."""
        proc = self.get_proc(lang, **options)
        try:
            proc.reset()
            yield proc
        finally:
            proc.ret_proc()

    def close(self) -> None:
        with self._handing:
            if self._closed:
                return
            self._closed = True
            _CLIENTS.discard(self)
        # An unused client has nothing to close, and an exiting program cannot start a thread.
        if self._thread.ident is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Closes the connections. Pending calls fail."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._core.close()

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


#: The clients of this process that are not closed.
_CLIENTS: Set[Client] = set()

#: The cores and loops of the parent, kept after a fork: a TLS connection that is collected would end it for both.
_LEFT: List[Any] = []


def _new_event_loop() -> asyncio.AbstractEventLoop:
    # An epoll is shared with forked children: one that exits would remove the parent's sockets from it.
    if hasattr(selectors, "PollSelector"):
        return asyncio.SelectorEventLoop(selectors.PollSelector())
    return asyncio.new_event_loop()


def _after_fork() -> None:
    for client in _CLIENTS:
        client._forked()


@atexit.register
def _close_all() -> None:
    """A program may exit without closing: pending work of its clients ends before the interpreter does."""
    for client in list(_CLIENTS):
        client.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _transport(
    place: Union[str, "os.PathLike[str]"],
    user: Optional[str],
    password: Optional[str],
    context: Optional[ssl.SSLContext],
    seconds: float,
) -> Any:
    """Reads an address as the service prints it: ``unix:PATH`` or a path, ``tcp:HOST:PORT``, ``tls:HOST:PORT``,
    ``http://HOST:PORT/``, ``https://HOST:PORT/``."""
    address = str(place)
    scheme, _, rest = address.partition(":")
    if scheme == "unix" or "/" in scheme or (not rest and scheme.endswith(".sock")):
        path = rest if scheme == "unix" else address
        login = None if user is None else (user, password or "")
        beside = SplitResult("unix", "", path.removesuffix(".sock") + ".http.sock", "", "")
        opening = functools.partial(asyncio.open_unix_connection, path)
        return SocketTransport(opening, f"unix:{path}", login, HttpTransport(beside, login, seconds))
    if scheme not in ("tcp", "tls", "http", "https"):
        raise _bad_address(address, "has no known scheme: write unix:PATH, tcp:HOST:PORT, tls:HOST:PORT or http://HOST:PORT/")
    is_http = scheme.startswith("http")
    try:
        url = urlsplit(address if is_http else f"{scheme}://{rest.lstrip('/')}")
        host, port = url.hostname, url.port
    except ValueError:
        # The error may have a part of a password.
        raise _bad_address(address, "cannot be read: give the port as a number, and a password percent-encoded") from None
    if not host or not (port or is_http):
        raise _bad_address(address, "names no host" if not host else "names no port")
    if user is None and url.username is not None:
        user, password = unquote(url.username), unquote(url.password or "")
    login = None if user is None else (user, password or "")
    if is_http:
        return HttpTransport(url, login, seconds, context)
    protection = (context or ssl.create_default_context()) if scheme == "tls" else None
    opening = functools.partial(asyncio.open_connection, host, port, ssl=protection)
    return SocketTransport(opening, f"{scheme}:{url.netloc.rpartition('@')[2]}", login)


def _bad_address(address: str, what: str) -> BadRequest:
    """Names the address without its user and password."""
    shown = re.sub(r"(?s)^([^:/]*:/*).*@", r"\1", address)
    return mistake(f"the address {shown!r} {what}")
