"""Types of the JSON objects that calls return, and the report of a call."""

from dataclasses import dataclass, field, fields
from typing import Any, Dict, Generic, List, Literal, Optional, TypedDict, TypeVar, Union

_T = TypeVar("_T")


class Response(TypedDict, total=False):
    """A function's response to a request."""

    code: int
    headers: Dict[str, str]
    body: str
    base64: str
    json: Any


class Rewritten(TypedDict, total=False):
    """A rewritten request."""

    method: str
    path: str
    headers: Dict[str, Any]
    query: Dict[str, Any]
    body: str
    code: int


class Refusal(TypedDict, total=False):
    """The refusal that a validate function threw: exactly one member."""

    forbidden: Any
    unauthorized: Any


Verdict = Union[Literal[True], Refusal]


class Log(TypedDict):
    """A line that functions or the service logged."""

    level: str
    message: str


class _Error(TypedDict):
    name: str
    message: str


class FunctionError(_Error, total=False):
    """An error in a function, as far as known."""

    #: Its path in the design document, or its place in ``funs``.
    function: Union[str, int]
    #: The id of the document.
    doc: str
    module: str
    line: int
    column: int
    source_line: str
    caret: str
    stack: List[str]


class Process(TypedDict):
    """The state of a process."""

    name: str
    pool: str
    language: str
    os_pid: Optional[int]
    state: Literal["running", "teaching", "lent", "starting", "ending", "idle"]
    state_ms: int
    holder: Optional[Dict[str, Any]]
    request_id: Optional[str]
    db: Optional[str]
    ddoc: Optional[str]
    function: Optional[str]
    uses: Optional[int]
    age_ms: Optional[int]
    cpu_us: Optional[int]
    memory: Optional[int]


class Processes(TypedDict):
    """Processes, the longest running first."""

    total_rows: int
    procs: List[Process]


class Killed(TypedDict):
    """How a process ends, and its state before."""

    how: Literal["killed", "told", "ending"]
    proc: Process


class Problem(TypedDict):
    """A problem and its remedy."""

    kind: str
    severity: Literal["warning", "critical"]
    subject: str
    count: int
    since: str
    lasted_s: float
    cause: str
    remedy: str


class _Health(TypedDict):
    status: Literal["ok", "warning", "critical", "unknown"]


class Health(_Health, total=False):
    """A daemon's problems, the worst first; for a fleet, ``daemons``, the queried one first."""

    daemon: str
    problems: List[Problem]
    daemons: "List[Health]"


class Pool(TypedDict):
    """The state of a pool."""

    name: str
    language: str
    group: Optional[str]
    command: str
    hard_limit: int
    soft_limit: int
    used: int
    free: int
    free_tagged: int
    opening: int
    stopping: int
    waiting: int
    longest_wait_ms: int
    removing: Optional[str]
    throttled_ms: Optional[int]
    failure: Optional[str]
    stressed_ms: Optional[int]
    settings: Dict[str, Any]
    totals: Dict[str, Any]
    abilities: Dict[str, Optional[bool]]
    sandbox: Optional[Dict[str, Any]]


class Pools(TypedDict):
    total_rows: int
    pools: List[Pool]


class Tenant(TypedDict):
    """The cost of a database; ``db`` is None for functions without a database."""

    db: Optional[str]
    calls: int
    errors: int
    kills: int
    wait_us: int
    run_us: int
    cpu_us: int
    bytes: int


class Tenants(TypedDict):
    since: str
    until: str
    total_rows: int
    tenants: List[Tenant]


class Job(TypedDict, total=False):
    """The state of a replication. For a document without a job some members are absent."""

    id: Optional[str]
    database: Optional[str]
    doc_id: Optional[str]
    document: Optional[str]
    node: Optional[str]
    source: Optional[str]
    target: Optional[str]
    state: str
    error_count: int
    info: Optional[Dict[str, Any]]
    history: List[Dict[str, str]]
    priority: int
    user: Optional[str]
    start_time: Optional[str]
    since: str
    next_try: Optional[str]
    last_progress: Optional[str]
    reason: str


class Jobs(TypedDict):
    total_rows: int
    offset: int
    jobs: List[Job]


class Down(TypedDict):
    """Why the service revoked a process."""

    down: str
    name: str
    reason: str


@dataclass(frozen=True)
class Report(Generic[_T]):
    """The service's report on a call with ``report=True``: its ``value``, and what happened during the call."""

    value: _T
    request_id: Optional[str] = None
    pool: Optional[str] = None
    logs: List[Log] = field(default_factory=list)
    logs_dropped: int = 0
    errors: List[FunctionError] = field(default_factory=list)
    errors_dropped: int = 0
    cost: Dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, reply: Dict[str, Any], value: _T) -> "Report[_T]":
        members = {member.name: reply[member.name] for member in fields(cls) if member.name in reply}
        return cls(**{**members, "value": value})
