"""A client of Settee: runs CouchDB's design-document functions in pooled processes."""

from .client import AsyncChunks, AsyncClient, Chunks, Client, LeaseOptions, Options, Proc, Report
from .errors import (
    BadRequest,
    Busy,
    CallTimeout,
    ClientClosed,
    CompilationError,
    Forbidden,
    NotFound,
    ProcessError,
    ProtocolError,
    ServiceError,
    SetteeError,
    Unauthorized,
    Unavailable,
)

__all__ = [
    "AsyncChunks",
    "AsyncClient",
    "BadRequest",
    "Busy",
    "CallTimeout",
    "Chunks",
    "Client",
    "ClientClosed",
    "CompilationError",
    "Forbidden",
    "LeaseOptions",
    "NotFound",
    "Options",
    "Proc",
    "ProcessError",
    "ProtocolError",
    "Report",
    "ServiceError",
    "SetteeError",
    "Unauthorized",
    "Unavailable",
]
__version__ = "0.1.0"
