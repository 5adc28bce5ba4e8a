"""Continuous calls while the service restarts: none of them fails."""

import sys
import threading

import settee
from tests.support import ADDRESSES, DEADLINE

COUNT = "function(doc) { emit(doc._id, 1) }"

#: Long enough to be sent once and then named by its digest, which the restarted service does not know.
DDOC = {"_id": "_design/d", "shows": {"s": "function(doc, req) { return 'shown' }"}, "text": "x" * (1 << 20)}


def request(order):
    print(order, flush=True)
    assert sys.stdin.readline() == f"{order}\n"


class Caller(threading.Thread):
    """Calls until ``over`` is set, and once more."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.over, self.called, self.is_done = address, threading.Event(), threading.Event(), False

    def run(self):
        with settee.Client(self.address, retry_for=3 * DEADLINE) as client:
            while True:
                is_last = self.over.is_set()
                assert client.map([COUNT], [{"_id": "a"}], db="shop") == [[[["a", 1]]]]
                assert client.show("shop", DDOC, "s")["body"] == "shown"
                assert client.reduce(["_count"], [[["a", "a"], 1]]) == [1]
                self.called.set()
                if is_last:
                    break
        self.is_done = True


callers = [Caller(address) for address in ADDRESSES for _ in range(2)]
for caller in callers:
    caller.start()
for caller in callers:
    assert caller.called.wait(DEADLINE)
request("restart")
for caller in callers:
    caller.over.set()
    caller.join(3 * DEADLINE)
assert all(caller.is_done for caller in callers)
