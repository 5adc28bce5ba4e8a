"""Plays each operation of /_openapi against a running daemon, and validates requests and answers.

Arguments: the URL of the daemon, its Unix socket, and the URLs of two databases that can be replicated. The daemon has
the users that `tests/external/openapi.rs` configures. Fails if the OpenAPI document is wrong or incomplete.
"""

import base64
import copy
import http.client
import json
import re
import socket
import sys
import time
import urllib.parse

from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from referencing import Registry
from referencing.jsonschema import DRAFT202012

DAEMON, SOCKET, SOURCE, TARGET = sys.argv[1:]
JSON = "application/json"
LINES = "application/x-ndjson"
METHODS = ("get", "put", "post", "delete")

# Statuses that need not be played: of a slow client, a locked user name, a fault, an overload.
NEVER = {"408", "429", "500", "503"}
# Statuses of single operations that need a certain moment, a fleet, or what this daemon lacks.
RARE = {
    "Up": {"404"},  # while the service stops
    "Reduce": {"501"},  # several functions, of a language whose query server runs one
    "DashboardLink": {"404"},  # a daemon without an address for HTTP
    "AcknowledgeLosses": {"200"},  # a loss
    "KillProc": {"409"},  # a process that is being started
    "PauseJob": {"409"},  # a job that no daemon of a fleet has
    "ResumeJob": {"409"},
    "RestartJob": {"409"},
    "SetJobPriority": {"409"},
    "GetReserved_local": {"304", "501"},  # of documents that have revisions
}


def login(name):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:secret".encode()).decode()}


class UnixConnection(http.client.HTTPConnection):
    """A connection to the daemon's Unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def exchange(method, path, headers, body, unix=False):
    """Sends a request, and returns the status, headers and text of the answer."""
    kind, address = (UnixConnection, "localhost") if unix else (http.client.HTTPConnection, urllib.parse.urlsplit(DAEMON).netloc)
    connection = kind(address, timeout=60)
    connection.request(method.upper(), path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


status, _, text = exchange("get", "/_openapi", {}, None)
assert status == 200, text
DOCUMENT = json.loads(text)
validate(DOCUMENT)


def deref(value):
    while "$ref" in value and len(value) == 1:
        _, *path = value["$ref"].split("/")
        value = DOCUMENT
        for name in path:
            value = value[name]
    return value


def walk(value):
    if isinstance(value, dict):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(member)


def closed():
    """Returns the document with schemas that reject unnamed members, unless they allow them or others extend them."""
    strict = copy.deepcopy(DOCUMENT)
    objects = [value for value in walk(strict["components"]["schemas"]) if isinstance(value.get("properties"), dict)]
    extended = [value["$ref"].rsplit("/", 1)[1] for value in objects if "$ref" in value]
    bases = [strict["components"]["schemas"][name] for name in extended]
    for value in objects:
        if "additionalProperties" not in value and not any(value is base for base in bases):
            value["unevaluatedProperties"] = False
    return strict


STRICT = Registry().with_resource("urn:strict", DRAFT202012.create_resource(closed()))


def check(value, schema, what):
    if "$ref" in schema:
        schema = {**schema, "$ref": "urn:strict" + schema["$ref"]}
    errors = list(Draft202012Validator(schema, registry=STRICT).iter_errors(value))
    assert not errors, f"{what}: {[error.message[:600] for error in errors]}"


def pattern(path):
    parts = re.split(r"\{(\w+)\}", path)
    parts[1::2] = [".+" if name == "below" else "[^/]+" for name in parts[1::2]]
    return re.compile("".join(re.escape(p) if n % 2 == 0 else p for n, p in enumerate(parts)))


PATHS = sorted(DOCUMENT["paths"], key=lambda path: path.count("{"))
OPERATIONS = [(path, method, DOCUMENT["paths"][path][method]) for path in PATHS for method in METHODS
              if method in DOCUMENT["paths"][path]]
assert sum(len(item) for item in DOCUMENT["paths"].values()) == len(OPERATIONS)
PLAYED = {operation["operationId"]: set() for _, _, operation in OPERATIONS}


def check_query(operation, query):
    described = [deref(parameter) for parameter in operation["parameters"]]
    described = {parameter["name"]: parameter for parameter in described if parameter["in"] == "query"}
    for name, value in urllib.parse.parse_qsl(query):
        parameter = described[name]
        schema = parameter.get("schema", {})
        is_list = schema.get("type") == "array"
        is_text = schema.get("type") == "string"
        check([value] if is_list else value if is_text else json.loads(value), schema, f"{name}={value}")


def play(method, path, expected, body=None, type=JSON, user="root", headers={}, unix=False):
    """Sends a request, validates the answer, and returns it. A request that succeeds must be valid, too."""
    bare, _, query = path.partition("?")
    template = next(t for t in PATHS if pattern(t).fullmatch(bare) and method in DOCUMENT["paths"][t])
    operation = DOCUMENT["paths"][template][method]
    sent = dict(headers)
    if user:
        sent.update(login(user))
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    if text is not None:
        sent["Content-Type"] = type
    status, received, answer = exchange(method, path, sent, text, unix)
    what = f"{method} {path} {text}: {status} {answer[:2000]}"
    assert status == expected, what
    assert str(status) in operation["responses"], f"not described: {what}"
    PLAYED[operation["operationId"]].add(str(status))
    if status < 300:
        check_query(operation, query)
        described = operation.get("requestBody")
        assert text is not None or not (described and described["required"]), what
        if text is not None and described:
            content = described["content"][type]
            if "schema" in content and type == JSON:
                check(json.loads(text), content["schema"], f"the body of {what}")
    content = deref(operation["responses"][str(status)]).get("content")
    if not content:
        assert answer == "", what
        return None
    media = received.get_content_type()
    assert media in content, f"{media}: {what}"
    schema = content[media].get("schema")
    if media != JSON:
        assert schema is None, what
        return answer
    if "feed=continuous" in query and status == 200:
        return answer
    value = json.loads(answer)
    check(value, schema, what)
    return value


def filled(path):
    """Returns a path with `0` for each parameter."""
    return re.sub(r"\{\w+\}", "0", path)


def common_errors():
    """Plays the errors that all operations have in common."""
    for path, method, operation in OPERATIONS:
        path, codes = filled(path), operation["responses"]
        local = "on the Unix socket only" in operation.get("description", "")
        body = {} if "requestBody" in operation else None
        play(method, path, 400, body, user=None, headers={"Authorization": "Bearer x"})
        play(method, path, 403, body, headers={"Origin": "http://foreign.example"})
        if local or operation.get("security") == [{}]:
            unknown = login("nobody-" + operation["operationId"])
            play(method, path, 401, body, user=None, headers=unknown)
            if local:
                play(method, path, 403, body)
        else:
            play(method, path, 401, body, user=None)
            play(method, path, 403, body, user="viewer" if path.startswith("/_query") else "caller")
        if "415" in codes:
            play(method, path, 415, "x", type="multipart/form-data", unix=local)
        if "413" in codes:
            # Refused because of its length, before the body is sent.
            play(method, path, 413, headers={"Content-Length": "100000000", "Content-Type": JSON}, unix=local)


def welcome():
    for path in ["/", "/_up", "/_openapi", "/_session"]:
        play("get", path, 200, user=None)
    play("get", "/_session", 200)
    play("post", "/_session", 200, {"name": "root", "password": "secret"}, user=None)
    play("post", "/_session", 401, {"name": "root", "password": "wrong"}, user=None)
    play("delete", "/_session", 200)


DDOC = {
    "_id": "_design/d",
    "validate_doc_update": "function(doc) { if (!doc.n) throw({forbidden: 'no n'}); if (doc.n > 7) throw({unauthorized: 'n'}) }",
    "filters": {"f": "function(doc) { return doc.n > 1 }"},
    "views": {"v": {"map": "function(doc) { if (doc.n) emit(doc.n) }"}},
    "shows": {"s": "function(doc) { return {code: 203, body: doc._id} }"},
    "lists": {"l": "function() { var row; while (row = getRow()) send(row.key); return '.' }"},
    "updates": {"u": "function(doc, req) { doc.n++; return [doc, 'counted'] }"},
    "rewrites": "function(req) { return '_show/' + req.path[0] }",
}


def functions():
    document = {"_id": "a", "n": 7}
    source = "function(doc) { log('seen'); emit(doc.n, 1) }"
    rows = [{"id": "a", "key": "x", "value": 1}]
    of_language = {
        "map": {"funs": [source], "docs": [document]},
        "reduce": {"funs": ["_sum", "function(keys, values) { return 1 }"], "rows": [[["k", "a"], 2], {"key": "k", "value": 3}]},
        "rereduce": {"funs": ["_sum", "function(keys, values) { return 1 }"], "values": [[5, 2], [1, 1]]},
        "index": {"fun": "function(doc) { index('n', doc.n, {store: true}) }", "docs": [document]},
        "compile": {"fun": source, "name": "v"},
    }
    of_ddoc = {
        "ddoc": {"path": ["shows", "s"], "args": [document, {}]},
        "validate": {"docs": [{"newDoc": {"n": n}, "oldDoc": None} for n in [1, 0, 8]]},
        "filter": {"name": "f", "docs": [document]},
        "filter_view": {"name": "v", "docs": [document]},
        "show": {"name": "s", "doc": document, "req": {}},
        "update": {"name": "u", "doc": document, "req": {}},
        "list": {"name": "l", "rows": rows, "head": {}, "req": {}},
        "rewrite": {"req": {"method": "GET", "path": ["s"]}},
    }
    calls = [(name, {"lang": "javascript", **call}, {"lang": "bare", **call}) for name, call in of_language.items()]
    bare = {**DDOC, "language": "bare"}
    calls += [(name, {"ddoc": DDOC, **call}, {"ddoc": bare, **call}) for name, call in of_ddoc.items()]
    for name, call, unable in calls:
        path, call = f"/_query/{name}", {"db": "shop", **call}
        play("post", path, 200, call)
        play("post", f"{path}?db=shop&report=true", 200, {**call, "timeout_ms": 60000}, user="caller")
        play("post", path, 404, {**call, "pool": "none"})
        play("post", path, 400, "{")
        if name == "map":
            unable["lib"] = {"a": "x"}
        if name in ["map", "index", *of_ddoc]:
            play("post", path, 501, {"db": "shop", **unable})
    broken = {"db": "shop", "lang": "javascript", "funs": ["function(doc) { emit("], "docs": [document]}
    play("post", "/_query/map?report=true", 400, broken)
    play("post", "/_query/map", 500, {**broken, "lang": "none"})
    for n, code in [(0, 403), (8, 401)]:
        refused = {"db": "shop", "ddoc": DDOC, "path": ["validate_doc_update"], "args": [{"n": n}, None, {}, {}]}
        play("post", "/_query/ddoc", code, refused)
    play("get", "/_query/limits", 200)
    play("post", "/_query/finalize", 200, {"funs": ["_first"], "values": [[["k", "a"], 2]]})
    play("post", "/_query/finalize", 400, {})
    lines = '{"db": "shop", "funs": ["function(doc) { emit(doc.n) }"]}\n{"_id": "a"}\n'
    play("post", "/_query/map", 200, lines, LINES)
    head = {"db": "shop", "ddoc": DDOC, "name": "l", "head": {}, "req": {}}
    play("post", "/_query/list", 200, f"{json.dumps(head)}\n{json.dumps(rows[0])}\n", LINES)
    play("get", "/_functions?period=hour&sort=p99&limit=7", 200)
    play("get", "/_functions?sort=none", 400)
    play("get", "/_tenants?sort=cpu&limit=7", 200)
    play("get", "/_tenants?sort=p99", 400)
    play("get", "/_tenants/shop/log?follow=false&since=0", 200)
    play("get", "/_tenants/shop/log?since=x", 400)


def pools():
    play("get", "/_status", 200, user="viewer")
    play("get", "/_pools", 200, user="viewer")
    play("put", "/_pools/more?dry_run=true", 200, {"language": "javascript"})
    play("put", "/_pools/more", 201, {"language": "javascript", "max": 2, "init_size": 1})
    play("put", "/_pools/more", 200, {"max": 1})
    play("put", "/_pools/more?mode=add", 412, {"language": "javascript"})
    play("put", "/_pools/none?mode=change", 404, {"max": 1})
    play("put", "/_pools/more", 400, {"max": "x"})
    for path in ["/_pools/{}", "/_pools/{}/_procs"]:
        play("get", path.format("more"), 200)
        play("get", path.format("none"), 404)
    for order in ["_terminate_stale", "_unthrottle"]:
        play("post", f"/_pools/more/{order}", 200)
        play("post", f"/_pools/none/{order}", 404)
    play("delete", "/_pools/more?mode=immediate&dry_run=true", 200)
    play("delete", "/_pools/more?mode=immediate", 200)
    play("delete", "/_pools/none", 404)
    play("delete", "/_pools/more?mode=none", 400)
    play("get", "/_procs?pool=none", 404)
    first = play("get", "/_procs?pool=javascript", 200)["procs"][0]["name"]
    play("delete", f"/_procs/{first}?now=true", 200)
    play("delete", "/_procs/none/1", 404)
    play("post", "/_reload_query_servers", 200)


def node():
    for path in ["_system", "_stats", "_stats/couchdb/query_server", "_stats/none", "_prometheus"]:
        play("get", f"/_node/_local/{path}", 200)
    play("get", "/metrics", 200)
    config = "/_node/_local/_config"
    play("get", config, 200)
    play("get", f"{config}/log", 200)
    play("get", f"{config}/couchdb/os_process_timeout", 200)
    play("get", f"{config}/log/none", 404)
    play("put", f"{config}/couchdb/os_process_timeout", 200, '"70000"')
    play("put", f"{config}/couchdb/os_process_timeout", 400, "7")
    play("put", f"{config}/server/hosts", 403, '"x"')
    play("post", f"{config}/_reload", 200, {})
    play("delete", f"{config}/couchdb/os_process_timeout", 200)
    play("delete", f"{config}/log/none", 404)
    play("get", "/_health", 200)
    play("get", "/_health?fleet=true", 200)
    play("get", "/_health?fleet=7", 400)
    play("delete", "/_health/drained", 400)
    play("delete", "/_health/documents_refused?subject=lost", 404)
    play("get", "/_drain", 200)
    play("put", "/_drain", 200)
    play("delete", "/_drain", 200)
    play("get", "/_audit?limit=7", 200)
    play("get", "/_audit?limit=-1", 400)
    play("get", "/_fleet", 200)
    for path in ["", "/state?period=hour&sort=calls", "/history?pool=javascript", "/page.js", "/page.css"]:
        play("get", f"/_dashboard{path}", 200)
    for path in ["", "/page.js"]:
        play("get", f"/_dashboard{path}", 304, headers={"If-None-Match": "*"})
    play("get", "/_dashboard/none", 404)


def jobs():
    play("put", "/_replicator/rep", 201, {"source": SOURCE, "target": TARGET, "continuous": True})
    play("put", "/_replicator/lost", 201, {"source": SOURCE + "-none", "target": TARGET})
    # It fails once `rep` has its job: both request the same replication.
    play("put", "/_replicator/again", 201, {"source": SOURCE, "target": TARGET, "continuous": True})
    until = time.monotonic() + 60
    while play("get", "/_scheduler/docs/_replicator/again", 200)["state"] != "failed":
        assert time.monotonic() < until, "it never fails"
    query = "states=running,pending,crashing,failed,completed,paused,error,initializing&limit=7&skip=0"
    jobs = f"/_scheduler/jobs?{query}&match=*&match=rep&source=*"
    for more in ["", "&sort=trouble", "&group_by=reason&sort=id"]:
        play("get", jobs + more, 200)
    play("get", "/_scheduler/jobs?states=none", 400)
    play("get", "/_active_tasks", 200)
    play("get", "/_scheduler/jobs/rep", 200)
    play("get", "/_scheduler/jobs/none", 404)
    for order, body in [("_pause", None), ("_resume", None), ("_restart", None), ("_priority", {"priority": 3})]:
        play("post", f"/_scheduler/jobs/rep/{order}", 200, body)
        play("post", f"/_scheduler/jobs/none/{order}", 404, body)
    play("post", "/_scheduler/jobs/rep/_priority", 400, {})
    select = {"match": ["rep", "none"]}
    play("post", "/_scheduler/_bulk", 200, {"order": "pause", "select": select, "dry_run": True})
    play("post", "/_scheduler/_bulk", 200, {"order": "priority", "select": {"all": True}, "priority": 1})
    play("post", "/_scheduler/_bulk", 409, {"order": "pause", "select": {"all": True}, "expect": 0})
    play("post", "/_scheduler/_bulk", 400, {"order": "pause", "select": {}})
    for path in ["", "/_replicator"]:
        play("get", f"/_scheduler/docs{path}?states=running,pending,failed,crashing,error&limit=7", 200)
        play("get", f"/_scheduler/docs{path}?descending=true&skip=0&startkey=%22z%22", 200)
    play("get", "/_scheduler/docs/_replicator/rep", 200)
    play("get", "/_scheduler/docs/_replicator/none", 404)
    play("get", "/_scheduler/docs/none", 400)
    play("post", "/_replicate", 200, {"source": TARGET, "target": SOURCE})
    play("post", "/_replicate", 400, {"source": 7})
    begun = play("post", "/_replicate", 202, {"source": TARGET, "target": SOURCE, "continuous": True})
    play("post", "/_replicate", 200, {"cancel": True, "id": begun["_local_id"]})
    play("post", "/_replicate", 404, {"cancel": True, "id": begun["_local_id"]})
    play("post", "/_replicate", 409, {"source": SOURCE, "target": TARGET, "continuous": True})


def local():
    """Plays the operations that are allowed on the Unix socket only."""
    def ask(*request):
        return play(*request, user=None, unix=True)

    ask("post", "/_node/_local/_config/_plan", 200)
    ask("post", "/_dashboard_link", 200)
    row = {"id": "imported", "rev": "1-a", "doc": {"source": SOURCE, "target": TARGET + "-i"}}
    ask("post", "/_scheduler/_import", 200, {"rows": [row, row, {**row, "id": "_x"}]})
    ask("post", "/_scheduler/_import", 400, {})
    ask("get", "/_scheduler/_export?secrets=true", 200)


def documents():
    database = "/_replicator"
    play("get", database, 200, user="replicator")
    play("put", database, 412)
    copies = {"new_edits": False}
    play("post", database, 201, {"_id": "p", "source": SOURCE, "target": TARGET + "-p"})
    play("post", database, 409, {"_id": "p", "source": SOURCE, "target": TARGET + "-p"})
    play("post", f"{database}?batch=ok", 202, {"source": SOURCE, "target": TARGET + "-q"})
    play("post", database, 501, copies)
    play("post", database, 403, {"source": 7})
    play("post", database, 400, "{")
    rev = play("get", f"{database}/p", 200)["_rev"]
    play("post", f"{database}?rev={rev}", 200, {"_id": "p", "_deleted": True})
    bulk = {"docs": [{"_id": "b", "source": SOURCE, "target": TARGET + "-b"}, {"_id": "rep"}]}
    play("post", f"{database}/_bulk_docs", 201, bulk)
    play("post", f"{database}/_bulk_docs", 501, {**bulk, **copies})
    play("post", f"{database}/_bulk_docs", 400, {})
    for query in ["include_docs=true&update_seq=true&limit=2", "keys=[%22b%22,%22none%22]", "key=%22b%22"]:
        play("get", f"{database}/_all_docs?{query}", 200)
    play("post", f"{database}/_all_docs", 200, {"keys": ["b", "none"], "include_docs": True})
    play("get", f"{database}/_all_docs?keys=7", 400)
    changes = f"{database}/_changes"
    for query in ["", "?include_docs=true&since=0&limit=3", "?descending=true", "?feed=longpoll&since=0",
                  "?filter=_doc_ids&doc_ids=[%22b%22]", "?feed=continuous&timeout=1", "?feed=eventsource&timeout=1",
                  "?since=now&heartbeat=true"]:
        play("get", changes + query, 200)
    play("get", f"{changes}?feed=none", 400)
    play("get", f"{changes}?filter=d/f", 501)
    play("post", f"{changes}?filter=_selector", 200, {"selector": {"_id": "b"}})
    play("post", f"{changes}?filter=d/f", 501, {})
    play("post", f"{changes}?filter=_selector&feed=eventsource&timeout=1", 200, {"selector": {}})
    security = play("get", f"{database}/_security", 200)
    play("put", f"{database}/_security", 200, security)
    play("put", f"{database}/_security", 501, {})
    for path, method, operation in OPERATIONS:
        if "Revisions" in operation["operationId"]:
            play(method, path, 501, None if method == "get" else {})
    replication = {"source": SOURCE, "target": TARGET + "-d"}
    for path, body in [("d", replication), ("_design/d", {"a": 1}), ("_local/d", {"a": 1})]:
        document(f"{database}/{path}", body)


def document(path, body):
    is_local = "_local" in path
    play("get", path, 404)
    play("delete", path, 404)
    rev = play("put", path, 201, body)["rev"]
    play("put", path, 409, {**body, "_rev": "7-" + 32 * "a"} if not is_local else {**body, "_rev": "0-7"})
    play("put", path, 501, {**body, "new_edits": False})
    play("put", path, 400, "{")
    play("put", f"{path}?batch=ok", 202, {**body, "_rev": rev})
    rev = play("get", path, 200)["_rev"]
    if not is_local:
        play("get", f"{path}?rev={rev}", 200)
        play("get", path, 304, headers={"If-None-Match": f'"{rev}"'})
        play("get", f"{path}?open_revs=all", 501)
    play("delete", path, 409)
    play("delete", f"{path}?new_edits=false", 501)
    play("delete", path, 200, headers={"If-Match": f'"{rev}"'})
    rev = play("put", path, 201, body)["rev"]
    play("put", path, 200, {"_rev": rev, "_deleted": True})


welcome()
common_errors()
functions()
pools()
node()
jobs()
local()
documents()
missing = {}
for _, _, operation in OPERATIONS:
    name = operation["operationId"]
    left = set(operation["responses"]) - PLAYED[name] - NEVER - RARE.get(name, set())
    if left:
        missing[name] = sorted(left)
assert not missing, f"described and not played: {missing}"
print(f"{len(PLAYED)} operations played")
