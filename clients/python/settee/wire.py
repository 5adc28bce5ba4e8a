"""Lines of JSON over a Unix or a TCP socket, or over TLS: requests out, replies in, matched by their ids."""

import asyncio
import contextlib
import hashlib
import itertools
import json
import re
from typing import Any, Awaitable, Callable, Dict, Optional, Set, Tuple, cast

from .errors import ClientClosed, ProtocolError, SetteeError, Unavailable, mistake, service_error

#: The longest reply that is read, in bytes.
REPLY_BYTES_MAX = 256 << 20

#: The longest line that every service accepts, in bytes. Before a longer one, the service's limit is requested.
LINE_BYTES_SURE = 1024

#: The limit of a service too old to report it, in bytes: the default of its configuration.
LINE_BYTES_DEFAULT = 64 << 20

#: Minimum size of design documents that are sent once and then named by the digest of their text, in bytes.
DDOC_BYTES_MIN = 1024

#: Maximum design documents remembered as sent; then all are forgotten, and sent again.
SENT_DDOCS_MAX = 1024

#: How long connecting and logging in may take together, in seconds.
CONNECT_SECONDS_MAX = 10.0

#: Maximum calls in flight on a connection; further calls wait here instead of for a process.
CALLS_MAX = 512

#: Calls exempt from ``CALLS_MAX``: most concern a process that this connection holds, which waiting calls may need.
_AT_ONCE = ("auth", "prompt", "ret_proc", "set_timeout", "cancel")

Login = Optional[Tuple[str, str]]
Json = Dict[str, Any]


def encode(value: Any) -> bytes:
    """Serializes one line. A member that JSON cannot represent is a TypeError that names it."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        member = _member_at_fault(value) or "an argument"
        raise TypeError(f"cannot send '{member}': {error}") from error


def _member_at_fault(value: Any, path: str = "", above: Tuple[int, ...] = ()) -> Optional[str]:
    """The path of the first member that JSON cannot represent, or that contains itself."""
    if id(value) in above:
        return path
    if isinstance(value, dict):
        members = [(f"{path}.{name}" if path else str(name), member) for name, member in value.items()]
    elif isinstance(value, (list, tuple)):
        members = [(f"{path}[{index}]", member) for index, member in enumerate(value)]
    else:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            return path
        return None
    found = (_member_at_fault(member, at, (*above, id(value))) for at, member in members)
    return next(filter(None, found), None)


def check_length(length: int, limit: int, key: str) -> None:
    """Raises for a call that the service would refuse as too long."""
    if length > limit:
        bound = f"the {limit} bytes that the service takes ([server] {key})"
        raise mistake(f"the call has {length} bytes, more than {bound}: send less at a time, or raise the bound")


def decode(text: bytes) -> Json:
    """Parses an object sent by the service."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError.because(f"{text[:100]!r} cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError.because(f"{text[:100]!r} is not an object")
    return cast(Json, value)


class SentDdocs:
    """The design documents already sent to a service: later calls name them by the digests of their texts."""

    def __init__(self) -> None:
        self._sent: Set[Tuple[str, str]] = set()

    async def call(
        self,
        arguments: Json,
        takes_digests: Callable[[], Awaitable[bool]],
        send: Callable[[Json], Awaitable[Json]],
    ) -> Json:
        """Makes a call by ``send``; the digest replaces a text that was sent before, if the service accepts digests."""
        ddoc = arguments.get("ddoc")
        # Encoded as the member ``ddoc``, so that an error has the full path.
        text = encode({"ddoc": ddoc})[8:-2]
        if not isinstance(ddoc, dict) or len(text) < DDOC_BYTES_MIN:
            return await send(arguments)
        key = repr(arguments.get("db")), hashlib.sha256(text).hexdigest()
        if key in self._sent and await takes_digests():
            reply = await send({**arguments, "ddoc": {"_id": ddoc.get("_id"), "sha256": key[1]}})
            if reply.get("error", {}).get("name") != "unknown_ddoc":
                return reply
        reply = await send(arguments)
        if len(self._sent) >= SENT_DDOCS_MAX:
            self._sent.clear()
        self._sent.add(key)
        return reply


class Connection:
    """One connection. Many calls may wait on it at the same time; when it ends, each fails."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.lost: Optional[SetteeError] = None
        #: Token of a held process -> what to call when the service revokes the process.
        self.downs: Dict[str, Callable[[Json], None]] = {}
        self._reader, self._writer = reader, writer
        self._ids = itertools.count(1)
        self._waiting: Dict[int, "asyncio.Future[Json]"] = {}
        # In Python 3.9 only one task at a time may wait for room in the send buffer.
        self._sending = asyncio.Lock()
        self._turns = asyncio.Semaphore(CALLS_MAX)
        #: Held while a line is checked, so that prompts keep their order while the limit is being requested.
        self._order = asyncio.Lock()
        self._limits: Optional["asyncio.Future[Tuple[int, bool]]"] = None
        self._ddocs = SentDdocs()
        self._reading = asyncio.ensure_future(self._read())

    async def call(self, name: str, arguments: Json, cancels: bool = False) -> Json:
        """Sends a request and returns its reply, even if that is an error. ``cancels``: if its caller gives up, the
        service is notified and ends the call's functions."""
        if name in _AT_ONCE:
            return await self._call(name, arguments, cancels)
        async with self._turns:
            return await self._ddocs.call(
                arguments, self._takes_digests, lambda shorter: self._call(name, shorter, cancels)
            )

    async def _takes_digests(self) -> bool:
        return (await self._ask_limits_once())[1]

    async def _call(self, name: str, arguments: Json, cancels: bool) -> Json:
        number = next(self._ids)
        line = encode({**arguments, "id": number, "call": name})
        async with self._order:
            if self._limits or len(line) > LINE_BYTES_SURE:
                check_length(len(line) - 1, (await self._ask_limits_once())[0], "line_max")
        return await self._send(number, line, cancels)

    def _ask_limits_once(self) -> "asyncio.Future[Tuple[int, bool]]":
        self._limits = self._limits or asyncio.ensure_future(self._ask_limits())
        return asyncio.shield(self._limits)

    async def _ask_limits(self) -> Tuple[int, bool]:
        """Returns the longest line that the service accepts, and whether it accepts digests of design documents."""
        number = next(self._ids)
        try:
            reply = await self._send(number, encode({"id": number, "call": "limits"}), False)
            return int(reply["ok"]["line_max"]), reply["ok"].get("ddoc_sha256") is True
        except (SetteeError, LookupError, TypeError):
            return LINE_BYTES_DEFAULT, False

    async def _send(self, number: int, line: bytes, cancels: bool) -> Json:
        if self.lost:
            raise self.lost
        reply: "asyncio.Future[Json]" = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        try:
            self._writer.write(line)
            async with self._sending:
                await self._writer.drain()
            return await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled() and not reply.exception():
                self._give_back(reply.result())
            elif cancels and not self.lost:
                self._writer.write(encode({"id": 0, "call": "cancel", "request": number}))
            raise
        except OSError as error:
            raise Unavailable.because(f"the connection broke: {error}") from error
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        reason: SetteeError = Unavailable.because("the connection was closed")
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                self._take_line(line)
        except SetteeError as error:
            reason = error
        except ValueError:
            reason = ProtocolError.because(f"a reply is longer than {REPLY_BYTES_MAX} bytes")
        except OSError as error:
            reason = Unavailable.because(f"the connection broke: {error}")
        finally:
            self._end(reason)

    def _take_line(self, text: bytes) -> None:
        try:
            line = decode(text)
        except ProtocolError as error:
            # A value may be nested too deeply for Python: that fails only its own call.
            reply = re.match(rb'{"id":(\d+),', text)
            if not reply:
                raise
            waiter = self._waiting.pop(int(reply[1]), None)
            if waiter and not waiter.done():
                waiter.set_exception(error)
        else:
            self._take(line)

    def _take(self, line: Json) -> None:
        if "down" in line:
            told = self.downs.pop(line["down"], None)
            return told(line) if told else None
        number = line.get("id")
        if number is None:
            # The service could not read a request, and says why before it closes.
            raise service_error(line.get("error"))
        waiter = self._waiting.pop(number, None)
        if waiter and not waiter.done():
            waiter.set_result(line)
        else:
            self._give_back(line)

    def _give_back(self, reply: Json) -> None:
        """Returns the process that a reply lends to a caller who gave up."""
        lent = reply.get("ok")
        if isinstance(lent, dict) and "proc" in lent:
            self._writer.write(encode({"id": 0, "call": "ret_proc", "proc": lent["proc"]}))

    def _end(self, reason: SetteeError) -> None:
        self.lost = reason
        self._writer.close()
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(reason)


def _is_over(connecting: "asyncio.Future[Connection]") -> bool:
    return connecting.cancelled() or bool(connecting.exception() or connecting.result().lost)


class SocketTransport:
    """Calls over one connection, opened for the first call and reopened after it was lost. Management requests go over
    ``http``, the transport of the HTTP socket next to this one."""

    #: All pieces of a list come in one reply.
    streams = False

    def __init__(self, open_streams: Callable[..., Any], address: str, login: Login, http: Any = None):
        self._open_streams, self._address, self._login, self._http = open_streams, address, login, http
        self._connecting: Optional["asyncio.Future[Connection]"] = None
        self._closed = False

    async def call(self, name: str, arguments: Json, again: bool = True) -> Json:
        """``again``, whether it may be sent twice, matters only over HTTP."""
        return await (await self.connection()).call(name, arguments, cancels=True)

    async def manage(self, method: str, path: str) -> Any:
        if not self._http:
            raise mistake(f"the service is not managed at {self._address}: use an http:// or https:// address")
        return await self._http.manage(method, path)

    async def connection(self) -> Connection:
        if self._closed:
            raise ClientClosed
        connecting = self._connecting
        if connecting is None or (connecting.done() and _is_over(connecting)):
            connecting = self._connecting = asyncio.ensure_future(self._connect())
        # A caller who gives up does not cancel the connection for the others.
        return await asyncio.shield(connecting)

    async def _connect(self) -> Connection:
        try:
            return await asyncio.wait_for(self._open(), CONNECT_SECONDS_MAX)
        except asyncio.TimeoutError:
            reason = f"no connection and login at {self._address} within {CONNECT_SECONDS_MAX} s"
            raise Unavailable.because(reason, sent=False) from None
        except FileNotFoundError as error:
            reason = f"there is no socket at {self._address}: no service runs, or its '[server] socket' is another"
            raise Unavailable.because(reason, sent=False, cause=error) from error
        except OSError as error:
            reason = f"cannot connect to {self._address}: {error}"
            raise Unavailable.because(reason, sent=False, cause=error) from error

    async def _open(self) -> Connection:
        connection = Connection(*await self._open_streams(limit=REPLY_BYTES_MAX))
        try:
            if self._login:
                name, password = self._login
                reply = await connection.call("auth", {"name": name, "password": password})
                if "error" in reply:
                    raise service_error(reply["error"])
        except BaseException:
            await connection.close()
            raise
        return connection

    async def close(self) -> None:
        self._closed = True
        if self._http:
            await self._http.close()
        connecting, self._connecting = self._connecting, None
        if connecting is None:
            return
        connecting.cancel()
        await asyncio.wait([connecting])
        if not connecting.cancelled() and not connecting.exception():
            await connecting.result().close()
