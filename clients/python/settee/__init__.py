"""A client of Settee: runs CouchDB's design-document functions in pooled processes."""

from .client import AsyncChunks, AsyncClient, Chunks, Client, Proc, Report
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

__all__ = [name for name in dir() if name[0].isupper()]
__version__ = "0.1.0"
