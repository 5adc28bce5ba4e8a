"""Why a call failed: a class for each reaction that a program may need."""

import ssl
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from .results import Report


class SetteeError(Exception):
    """Any failure of a call.

    name:    what it is, for programs, for example ``compilation_error``
    reason:  why: a string, or the JSON value that the function threw
    fault:   who caused it: ``client``, ``function``, ``query_server``, ``host`` or ``settee``
    retry:   whether the same call may succeed later
    shifted: whether the query server printed more lines than requested, so that earlier answers of the process may
             belong to other prompts
    report:  the :class:`settee.Report` of a call with ``report=True``
    details: the error as received. ``phase``, ``db``, ``ddoc``, ``function``, ``doc``, ``exit``, ``status``, ``stderr``,
             ``limit_ms``, ``retry_after_ms`` and some more are also attributes, None if absent
    """

    report: Optional["Report[None]"] = None
    phase: Optional[str]
    fatal: Optional[bool]
    exit: Optional[str]
    status: Optional[int]
    stderr: Optional[List[str]]
    proc: Optional[str]
    db: Optional[str]
    ddoc: Optional[str]
    function: Optional[str]
    doc: Optional[str]
    limit_ms: Optional[int]
    retry_after_ms: Optional[int]
    line: Optional[int]

    def __init__(self, details: Dict[str, Any]):
        super().__init__(details)
        self.details = details
        self.name: str = details.get("name") or "unknown_error"
        self.reason: Any = details.get("reason")
        self.fault: str = details.get("fault") or "settee"
        self.retry: bool = bool(details.get("retry"))
        self.shifted: bool = bool(details.get("shifted"))

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"

    if not TYPE_CHECKING:

        def __getattr__(self, member):
            if member in SetteeError.__annotations__:
                return self.details.get(member)
            raise AttributeError(member)


class Unavailable(SetteeError):
    """No connection could be made, or it ended before the reply, or the service is stopping."""

    @classmethod
    def because(cls, reason: str, sent: bool = True, cause: Optional[Exception] = None) -> "Unavailable":
        """``sent``: the service may have received the call. An unverifiable certificate is not worth a retry."""
        retry = not isinstance(cause, ssl.SSLCertVerificationError)
        return cls({"name": "unavailable", "reason": reason, "fault": "host", "retry": retry, "sent": sent})


class ClientClosed(SetteeError):
    """The client was closed before the call, or while it waited."""

    def __init__(self) -> None:
        super().__init__({"name": "client_closed", "reason": "this client was closed", "fault": "client"})


class ProtocolError(SetteeError):
    """The peer does not speak the protocol: another program listens there, or another version."""

    @classmethod
    def because(cls, reason: str) -> "ProtocolError":
        return cls({"name": "protocol_error", "reason": reason, "fault": "settee", "retry": False})


class ServiceError(SetteeError):
    """The service, or a function that it ran, reported an error. One without a class below is a plain ServiceError."""


class BadRequest(ServiceError):
    """An argument is missing or wrong."""


class CompilationError(ServiceError):
    """A function does not compile."""


class Unauthorized(ServiceError):
    """The name or the password is wrong, a login is needed, or a function threw ``unauthorized``."""


class Forbidden(ServiceError):
    """The user may not do this, or a function threw ``forbidden``."""


class NotFound(ServiceError):
    """No pool, group, process or function has this name."""


class CallTimeout(ServiceError):
    """A time limit was exceeded; ``phase`` says which."""


class Busy(ServiceError):
    """The service accepts no more work for now. ``retry_after_ms`` says when to retry, if known."""


class ProcessError(ServiceError):
    """The process could not be started, or ended; ``exit`` and ``stderr`` say how."""


_BY_NAME = {
    "bad_request": BadRequest,
    "compilation_error": CompilationError,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "timeout": CallTimeout,
    "pool_busy": Busy,
    "tenant_busy": Busy,
    "throttled": Busy,
    "too_many_held": Busy,
    "too_many_requests": Busy,
    "os_process_error": ProcessError,
    "out_of_memory": ProcessError,
}


def service_error(details: Any) -> SetteeError:
    """Makes an error from a reply's ``error`` object."""
    if not isinstance(details, dict):
        return ProtocolError.because(f"the error {details!r:.100} is not an object")
    if details.get("name") in ("shutting_down", "draining"):
        return Unavailable.because(str(details.get("reason")))
    return _BY_NAME.get(str(details.get("name")), ServiceError)(details)


def mistake(reason: str) -> BadRequest:
    """Makes the error for a call that cannot be made."""
    return BadRequest({"name": "bad_request", "reason": reason, "fault": "client"})
