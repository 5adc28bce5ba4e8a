"""A service that is killed and comes back, beside who does both: this program says when, on its output."""

import threading
import sys

import settee
from tests.support import DEADLINE

COUNT = "function(doc) { emit(doc._id, 1) }"
ROWS = [[[["a", 1]]]]


def ask(order):
    print(order, flush=True)
    assert sys.stdin.readline() == f"{order}\n"


def main(address):
    with settee.Client(address) as client:
        assert client.map([COUNT], [{"_id": "a"}]) == ROWS
        proc = None if address.startswith("http") else client.get_proc("javascript")
        ask("kill")
        with settee.Client(address, retry_for=0) as other:
            try:
                raise AssertionError(other.map([COUNT], [{"_id": "a"}]))
            except settee.Unavailable as error:
                assert (error.fault, error.retry) == ("host", True), error
        if proc:
            # What was lent over the lost connection is lost with it.
            try:
                raise AssertionError(proc.prompt(["reset"]))
            except settee.Unavailable:
                assert proc.ret_proc() is False
        rows = []
        waiting = threading.Thread(target=lambda: rows.append(client.map([COUNT], [{"_id": "a"}])))
        waiting.start()
        ask("start")
        waiting.join(DEADLINE)
        assert rows == [ROWS], rows


main(*sys.argv[1:])
