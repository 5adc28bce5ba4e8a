import json
import sys

LINES = 100_000


def floods_its_errors(doc):
    for number in range(LINES):
        sys.stderr.write(f"line {number:06} of a flood that goes on and on and on\n")
    return "flooded"


def floods_the_log(doc):
    for number in range(LINES):
        sys.stdout.write(json.dumps(["log", f"line {number:06} of a flood that goes on and on"]) + "\n")
    return "flooded"


def floods_its_output(doc):
    for _ in range(LINES):
        sys.stdout.write("this is no answer, and there is more of it than anybody wants to have\n")
    return "flooded"


def floods_its_output_with_one_line(doc):
    for _ in range(LINES):
        sys.stdout.write("this line has no end, and there is more of it than anybody wants to have")
    while True:
        sys.stdout.write("x" * 100_000)
