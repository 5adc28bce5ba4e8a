#!/usr/bin/env python3
# A query server for Python: one JSON array a line in, one JSON value a line out. Needs nothing but Python 3.8.
#
#   [query_servers]
#   python = "python3 examples/languages/python_server.py"
#
# A source may import and define helpers; its last function is used: `def fun(doc): yield doc['type'], 1`. Sources
# can use log, index, Forbidden, Unauthorized, and require('views/lib/NAME'), which returns what the module puts into
# `exports`. Design documents may have shows, updates, filters, views, rewrites and validation; lists are answered with
# an error, and reduce_limit is not enforced. Errors name function and line. Sources are run by `exec`, and can do all
# that the server can: only the cell of the pool confines them.
import json
import os
import sys
import traceback
from types import FunctionType

OUTPUT, INPUT = os.fdopen(os.dup(1), 'wb'), os.fdopen(os.dup(0), 'rb')
os.dup2(2, 1)  # output of functions must not look like answers
sys.stdin = open(os.devnull)  # functions must not read commands
MARK = 'source:'  # begins the file names of sources in tracebacks
MISTAKES = (Exception, SystemExit)  # raised by sources; anything else ends the server

class Failure(Exception): """Becomes an error line: a name, and a reason."""
class Forbidden(Exception): """Raised by functions that validate."""
class Unauthorized(Exception): """Raised by functions that validate."""

def dump(value): return json.dumps(value, allow_nan=False, separators=(',', ':'))

def log(text, *more): respond(dump(['log', text if isinstance(text, str) else json.dumps(text), *more]))

def respond(text):
    OUTPUT.write(text.encode() + b'\n')
    OUTPUT.flush()

def explain(error, place):
    """Returns a text that names function and line, and members of a report. Without a line, the text names `place`."""
    told = {'name': type(error).__name__, 'message': str(error)}
    frames = [(it.f_code.co_filename, it.f_code.co_name, line) for it, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        told['message'] = error.msg
        frames.append((error.filename or '', '<module>', error.lineno))
    own = [frame for frame in frames if frame[0].startswith(MARK)]
    if own:
        (file, name, told['line']), function = own[-1], place
        place = f"{file[len(MARK):]}, {name}, line {told['line']}"
        if file != MARK + function:
            told['module'] = file[len(MARK):]
    return f"{told['name']}: {told['message']} ({place})", told

def attempt(name, place, run):
    try:
        return run()
    except MISTAKES as error:
        raise Failure(name, explain(error, place)[0])

class World:
    """What sources see. Modules are texts in a tree: that of a library, or a design document."""
    def __init__(self, tree): self.tree, self.modules, self.functions = tree, {}, {}

    def source(self, path):
        node = self.tree
        for part in path.split('/'):
            node = node.get(part) if isinstance(node, dict) else None
        return node if isinstance(node, str) else None

    def run(self, source, place, **names):
        names.update(log=log, index=self.index, require=self.require, Forbidden=Forbidden, Unauthorized=Unauthorized)
        exec(compile(source, MARK + place, 'exec'), names)
        return [it for it in names.values() if isinstance(it, FunctionType) and it.__code__.co_filename == MARK + place]

    def index(self, name, value, options=None): self.rows.append([name, value, options or {}])

    def require(self, path):
        if path not in self.modules:
            source = self.source(path)
            if source is None:
                raise ImportError(f"there is no module '{path}'")
            exports = {}
            self.run(source, path, exports=exports)
            self.modules[path] = exports
        return self.modules[path]

    def compile(self, source, place):
        made = attempt('compilation_error', place, lambda: self.run(source, place))
        if not made:
            raise Failure('compilation_error', f'the source defines no function ({place})')
        return made[-1]

    def column(self, command, number, function, doc):
        try:
            self.rows = []
            rows = [[key, value] for key, value in function(doc) or []]
            return dump(rows if command == 'map_doc' else self.rows)
        except MISTAKES as error:
            text, told = explain(error, f'function {number}')
            more = [{'function': number, 'doc': doc.get('_id'), **told}] if report else []
            log(f"function raised exception {text} with doc._id {doc.get('_id')}", *more)
            return '[]'

    def reduce(self, sources, *arguments):
        results = []
        for place, source in ((f'function {number}', source) for number, source in enumerate(sources)):
            function = self.compile(source, place)
            given = arguments[:2] if function.__code__.co_argcount == 2 else arguments
            results.append(attempt('runtime_error', place, lambda: dump(function(*given))))
        return f"[true,[{','.join(results)}]]"

    def call(self, path, arguments):
        kind, place = KINDS.get(path[0]), '/'.join(path)
        if kind is None:
            raise Failure('not_supported', f'there are no {path[0]} in this server for Python')
        if place not in self.functions:
            if self.source(place) is None:
                raise Failure('not_found', f'missing function {place}')
            self.functions[place] = self.compile(self.source(place), place)
        return attempt('runtime_error', place, lambda: dump(kind(self.functions[place], *arguments)))

def validate(function, *arguments):
    try:
        function(*arguments)
        return 1
    except (Forbidden, Unauthorized) as error:
        return {type(error).__name__.lower(): str(error)}

def response(said): return said if isinstance(said, dict) else {'body': said}

def update(doc, said): return ['up', doc, response(said)]

def rewrite(to, req):
    return ['ok', to if isinstance(to, dict) else {'path': to, 'method': req['method']}] if to else ['no_dispatch_rule']

KINDS = {  # of functions in design documents
    'shows': lambda run, *arguments: ['resp', response(run(*arguments))],
    'updates': lambda run, *arguments: update(*run(*arguments)),
    'filters': lambda run, docs, req: [True, [bool(run(doc, req)) for doc in docs]],
    'views': lambda run, docs: [True, [bool(list(run(doc) or [])) for doc in docs]],
    'rewrites': lambda run, req: rewrite(run(req), req),
    'validate_doc_update': validate,
}
functions, views, ddocs, report = [], World({}), {}, False  # a reset keeps the design documents

def answer(command, *given):
    global functions, views, report
    if command == 'reset':
        functions, views, report = [], World({}), bool(given and given[0].get('report'))
    elif command == 'add_lib':
        views = World({'views': {'lib': given[0]}})
    elif command == 'add_fun':
        functions.append(views.compile(given[0], f'function {len(functions)}'))
    elif command in ('map_doc', 'index_doc'):
        return f"[{','.join(views.column(command, at, it, given[0]) for at, it in enumerate(functions))}]"
    elif command == 'reduce':
        return views.reduce(given[0], [row[0] for row in given[1]], [row[1] for row in given[1]], False)
    elif command == 'rereduce':
        return views.reduce(given[0], None, given[1], True)
    elif command == 'ddoc' and given[0] == 'new':
        ddocs[given[1]] = World(given[2])
    elif command == 'ddoc' and given[0] in ddocs:
        return ddocs[given[0]].call(*given[1:])
    else:
        raise Failure('unknown_command', f"unknown command '{command}', or invalid arguments")
    return 'true'

for line in INPUT:
    command = json.loads(line)  # anything but JSON ends the server
    try:
        respond(answer(*command))
    except Failure as failure:
        respond(dump(['error', *failure.args]))
