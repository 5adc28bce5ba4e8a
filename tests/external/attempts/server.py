"""A query server for functions in Python, which it does not restrict in any way."""

import json
import sys

functions = []


def compile_function(source):
    names = {}
    exec(source, names)
    return names["fun"]


def answer(command, *arguments):
    if command == "reset":
        functions.clear()
        return True
    if command == "add_fun":
        functions.append(compile_function(arguments[0]))
        return True
    if command == "map_doc":
        return [[list(row) for row in function(arguments[0])] for function in functions]
    return ["error", "unknown_command", command]


def serve():
    while True:
        line = sys.stdin.readline()
        if not line:
            return
        sys.stdout.write(json.dumps(answer(*json.loads(line))) + "\n")
        sys.stdout.flush()


serve()
