"""A client whose service the parent kills and restarts when this program requests it on standard output."""

import threading
import sys

import settee
from tests.support import DEADLINE

COUNT = "function(doc) { emit(doc._id, 1) }"
ROWS = [[[["a", 1]]]]


def request(order):
    print(order, flush=True)
    assert sys.stdin.readline() == f"{order}\n"


def main(address):
    with settee.Client(address) as client:
        assert client.map([COUNT], [{"_id": "a"}]) == ROWS
        proc = None if address.startswith("http") else client.get_proc("javascript")
        request("kill")
        with settee.Client(address, retry_for=0) as other:
            try:
                raise AssertionError(other.map([COUNT], [{"_id": "a"}]))
            except settee.Unavailable as error:
                assert (error.fault, error.retry) == ("host", True), error
        if proc:
            # A lease is lost with its connection.
            try:
                raise AssertionError(proc.prompt(["reset"]))
            except settee.Unavailable:
                assert proc.ret_proc() is False
        rows = []
        waiting = threading.Thread(target=lambda: rows.append(client.map([COUNT], [{"_id": "a"}])))
        waiting.start()
        request("start")
        waiting.join(DEADLINE)
        assert rows == [ROWS], rows


main(*sys.argv[1:])
