"""Calls of functions and management requests over HTTP, also on a Unix socket. Each call has a connection and, while it
lasts, a thread."""

import asyncio
import base64
import contextlib
import functools
import http.client
import itertools
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, TypeVar
from urllib.parse import SplitResult

from .errors import ClientClosed, ProtocolError, SetteeError, Unavailable, mistake, service_error
from .wire import (
    LINE_BYTES_DEFAULT,
    LINE_BYTES_SURE,
    REPLY_BYTES_MAX,
    Json,
    Login,
    SentDdocs,
    check_length,
    decode,
    encode,
)

#: Maximum concurrent requests of one client; others wait. A list counts only while it is opened or read.
CONNECTIONS_MAX = 16

#: How much of an answer is read at a time, in bytes.
PIECE_BYTES = 64 * 1024

#: Name of a call -> its name in the path.
PATHS = {
    "map_docs": "map",
    "reduce": "reduce",
    "rereduce": "rereduce",
    "finalize": "finalize",
    "ddoc_prompt": "ddoc",
    "validate_docs": "validate",
    "filter_docs": "filter",
    "filter_view": "filter_view",
    "show": "show",
    "list": "list",
    "update": "update",
    "rewrite": "rewrite",
    "index_docs": "index",
    "try_compile": "compile",
}

_T = TypeVar("_T")

_BROKEN = (OSError, http.client.HTTPException)


def _error(status: int, text: bytes) -> SetteeError:
    """Makes the error of an answer. Errors from outside the pool carry no fault and no retry: they get defaults."""
    try:
        answer = decode(text)
    except ProtocolError:
        answer = {"error": f"http_{status}", "reason": text[:100].decode(errors="replace")}
    defaults = {"fault": "client" if status < 500 else "settee", "retry": status in (408, 429, 503)}
    return service_error({"name": answer.pop("error", None), **defaults, **answer})


def _text(answer: http.client.HTTPResponse) -> bytes:
    text = bytearray()
    while piece := answer.read(PIECE_BYTES):
        text += piece
        if len(text) > REPLY_BYTES_MAX:
            raise ProtocolError.because(f"an answer is longer than {REPLY_BYTES_MAX} bytes")
    return bytes(text)


class _Exchange:
    """A request and its answer. ``abort`` shuts the connection down while a thread still uses it; the service then
    cancels the call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None
        self._aborted = False

    def use(self, connected: Optional[socket.socket]) -> None:
        """Begins to use a connection; None releases it for other requests. Raises if the caller gave up."""
        with self._lock:
            self._socket = connected
            if self._aborted:
                raise ConnectionAbortedError("the caller gave up")

    def abort(self) -> None:
        with self._lock:
            self._aborted = True
            if self._socket:
                with contextlib.suppress(OSError):
                    # SSLSocket.shutdown would also drop the TLS state while another thread reads.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class _LocalConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class HttpTransport:
    """Calls over kept-alive connections. A ``url`` with the scheme ``unix`` has the path of a socket."""

    def __init__(self, url: SplitResult, login: Login, seconds: float, context: Optional[ssl.SSLContext] = None):
        where: Dict[str, Any] = {"host": url.hostname or "", "port": url.port, "timeout": seconds}
        self._connect: Callable[[], http.client.HTTPConnection]
        self._connect = functools.partial(http.client.HTTPConnection, **where)
        if url.scheme == "https":
            self._connect = functools.partial(http.client.HTTPSConnection, context=context, **where)
        if url.scheme == "unix":
            self._connect = functools.partial(_LocalConnection, url.path, seconds)
        self._address = url.netloc.rpartition("@")[2] or url.path
        # A stream sends and reads in two threads, which a TLS connection does not allow.
        self.streams = url.scheme == "http"
        self._headers = {"Content-Type": "application/json"}
        if login:
            token = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._threads = ThreadPoolExecutor(CONNECTIONS_MAX, "settee-http")
        self._idle: List[http.client.HTTPConnection] = []
        self._exchanges: Set[_Exchange] = set()
        self._closed = False
        #: The longest body that the service is known to accept.
        self._body_max = LINE_BYTES_SURE
        #: Whether the service accepts digests of design documents; None while unknown.
        self._digests: Optional[bool] = None
        self._ddocs = SentDdocs()

    async def connection(self) -> Any:
        raise mistake("'get_proc' needs a socket")

    async def call(self, name: str, arguments: Json, again: bool = True) -> Json:
        if name not in PATHS:
            raise mistake(f"'{name}' needs a socket")
        path = f"/_query/{PATHS[name]}"
        return await self._ddocs.call(
            arguments, self._takes_digests, lambda shorter: self._request("POST", path, shorter, again)
        )

    async def _takes_digests(self) -> bool:
        """Asks again before a connection is made: the service may have been upgraded."""
        if self._digests is None or not self._idle:
            self._take_limits(await self._request("GET", "/_query/limits"))
        return bool(self._digests)

    def _take_limits(self, answer: Json) -> None:
        limits = answer.get("ok") or {}
        self._body_max = limits.get("body_max", LINE_BYTES_DEFAULT)
        self._digests = limits.get("ddoc_sha256") is True

    async def manage(self, method: str, path: str) -> Json:
        answer = await self._request(method, path, None, method == "GET")
        return answer if "error" in answer else {"ok": answer}

    async def _request(self, *request: Any) -> Json:
        exchange = _Exchange()
        self._exchanges.add(exchange)
        try:
            return await self.in_thread(self._ask, exchange, *request)
        except asyncio.CancelledError:
            exchange.abort()
            raise
        finally:
            self._exchanges.discard(exchange)

    async def in_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        if self._closed:
            raise ClientClosed
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    def _ask(
        self, exchange: "_Exchange", method: str, path: str, arguments: Optional[Json] = None, again: bool = True
    ) -> Json:
        body = None if arguments is None else encode(arguments)
        self._check_body(exchange, len(body or b""))
        try:
            # A request that must not be sent twice uses no connection that the service may have closed.
            connection = self._idle.pop() if again else self._connect()
        except IndexError:
            connection = self._connect()
        sent = False
        try:
            if connection.sock is None:
                connection.connect()
            exchange.use(connection.sock)
            sent = True
            connection.request(method, path, body, self._headers_of(arguments or {}))
            answer = connection.getresponse()
            text = _text(answer)
            exchange.use(None)
        except _BROKEN as broken:
            connection.close()
            # The service closes idle connections: the others are probably closed too.
            self._drop_idle()
            raise self.lost(broken, sent) from broken
        if again:
            self._idle.append(connection)
        else:
            connection.close()
        if answer.status == 200:
            return decode(text)
        error = _error(answer.status, text)
        if isinstance(error, Unavailable):
            raise error
        return {**error.details, "error": error.details}

    def _check_body(self, exchange: "_Exchange", length: int) -> None:
        """Asks again before a body is refused: the service's limit may have been raised."""
        if length > self._body_max:
            self._take_limits(self._ask(exchange, "GET", "/_query/limits"))
        check_length(length, self._body_max, "body_max")

    def lost(self, error: Exception, sent: bool = True) -> Unavailable:
        self._body_max, self._digests = LINE_BYTES_SURE, None
        reason = f"no answer over HTTP from {self._address}: {str(error) or type(error).__name__}"
        return Unavailable.because(reason, sent, error)

    def _headers_of(self, arguments: Json) -> Dict[str, str]:
        request_id = arguments.get("request_id")
        return {**self._headers, "X-Request-Id": request_id} if request_id else self._headers

    async def list(self, arguments: Json, rows: Iterable[Any]) -> "RowStream":
        stream = RowStream(self, self._connect(), arguments, rows)
        try:
            await self.in_thread(stream.open, self._headers_of(arguments))
        except BaseException:
            stream.close()
            raise
        return stream

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    async def close(self) -> None:
        self._closed = True
        for exchange in self._exchanges:
            exchange.abort()
        self._threads.shutdown(wait=False)
        self._drop_idle()


class RowStream:
    """A list function at work: a thread sends it rows while the pieces of its answer are read."""

    def __init__(self, transport: HttpTransport, connection: Any, arguments: Json, rows: Iterable[Any]):
        self.response: Json = {}
        self._transport, self._connection = transport, connection
        self._lines = map(encode, itertools.chain([arguments], rows))
        self._answer: Optional[http.client.HTTPResponse] = None
        self._socket: Optional[socket.socket] = None
        self._failure: Optional[BaseException] = None

    def open(self, headers: Dict[str, str]) -> None:
        try:
            self._connection.connect()
            self._socket = self._connection.sock
            self._connection.putrequest("POST", f"/_query/{PATHS['list']}")
            streaming = {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"}
            for name, value in {**headers, **streaming}.items():
                self._connection.putheader(name, value)
            self._connection.endheaders()
            threading.Thread(target=self._send, args=(self._socket.sendall,), daemon=True).start()
            self._answer = self._connection.getresponse()
            if self._answer.status != 200:
                raise _error(self._answer.status, _text(self._answer))
        except _BROKEN as error:
            raise self._failure or self._transport.lost(error) from error
        line = self._line()
        if line is None:
            raise ProtocolError.because("a list without a response")
        self.response = line.get("response", {})

    def _send(self, send: Callable[[bytes], None]) -> None:
        try:
            for line in self._lines:
                send(b"%x\r\n%b\r\n" % (len(line), line))
            send(b"0\r\n\r\n")
        except OSError:
            pass  # A function that stops reading rows ends the answer; the reader notices a broken connection.
        except BaseException as error:
            self._failure = error
            self.close()

    def _line(self) -> Optional[Json]:
        assert self._answer, "a stream is read once it is open"
        try:
            text = self._answer.readline(REPLY_BYTES_MAX)
        except _BROKEN as error:
            raise self._failure or self._transport.lost(error) from error
        if not text:
            if self._failure:
                raise self._failure
            return None
        line = decode(text)
        if "error" in line:
            raise _error(200, text)
        return line

    async def next(self) -> Optional[str]:
        """Returns the next piece of the body, None at the end."""
        try:
            line = await self._transport.in_thread(self._line)
        except BaseException:
            self.close()
            raise
        return line.get("chunk", "") if line is not None else None

    def close(self) -> None:
        """Closes the connection, even while a thread reads from it."""
        if self._socket:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()
