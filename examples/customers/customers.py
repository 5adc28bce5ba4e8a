"""A product with hundreds of customers whose functions it runs: limits, invoices and logs.

    settee serve --config settee.toml
    python3 customers.py settee.sock 500

A customer has a database, and functions of his own. His limits are in settee.toml; what he has cost is
counted by Settee. The first customer does what nobody should: his functions never end. The others do not notice. Each
can be shown what his functions log, and the errors that they end with.
"""

import asyncio
import contextlib
import http.client
import json
import socket
import sys
import time
from typing import Any, Dict, Iterator, List

import settee

# What a customer pays: for a thousand calls, and for a second of processor time.
CALLS_PRICE, CPU_PRICE = 0.10, 0.02

# The number of customers that call at a time.
AT_ONCE = 16

GREEDY = "customer-0"
ENDLESS = "function(doc) { for (;;); }"
DOCS = [{"_id": str(number), "total": number} for number in range(20)]
VIEW = "function(doc) { if (!doc.total) log('no total: ' + doc._id); emit('%s', doc.total) }"

Costs = Dict[str, Dict[str, Any]]


class Operator(http.client.HTTPConnection):
    """The operator of Settee: HTTP over a second Unix socket, next to the one for calls."""

    def __init__(self, address: str):
        super().__init__("localhost")
        self.address = address.removesuffix(".sock") + ".http.sock"

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.address)

    def ask(self, path: str) -> Iterator[Dict[str, Any]]:
        """Yields the lines of an answer as they arrive."""
        with contextlib.closing(self):
            self.request("GET", path)
            with self.getresponse() as answer:
                assert answer.status == 200, answer.read()
                yield from map(json.loads, filter(bytes.strip, answer))


def costs(address: str) -> Costs:
    """Returns each customer's costs since Settee began to count. A product saves it on the first of each month."""
    [page] = Operator(address).ask("/_tenants")
    return {row["db"]: row for row in page["tenants"] if row["db"]}


async def be_greedy(client: settee.AsyncClient) -> str:
    """Makes one of the calls that never end. Returns how Settee ended it."""
    try:
        await client.map([ENDLESS], DOCS[:1], db=GREEDY)
    except settee.Busy:
        return "refused"
    except settee.CallTimeout:
        return "out of time"
    return "answered"


async def work(client: settee.AsyncClient, customer: str, turn: asyncio.Semaphore) -> float:
    """Runs a customer's view over his documents. Returns the seconds that it took."""
    async with turn:
        begun = time.monotonic()
        rows = await client.map([VIEW % customer], DOCS, db=customer)
        assert len(rows) == len(DOCS)
        return time.monotonic() - begun


def first_line(address: str, customer: str) -> str:
    """Waits for the first line of a customer's stream: what his functions log, and the errors that they end with."""
    line = next(Operator(address).ask(f"/_tenants/{customer}/log?follow"))
    return "%(kind)s: %(message)s" % line


def invoice(before: Costs, after: Costs) -> List[str]:
    """Returns one line for each customer: name, calls, milliseconds of processor time, price."""
    lines = []
    for customer, row in sorted(after.items()):
        old = before.get(customer, {"calls": 0, "cpu_us": 0})
        calls, cpu_us = row["calls"] - old["calls"], row["cpu_us"] - old["cpu_us"]
        price = calls * CALLS_PRICE / 1000 + cpu_us / 1e6 * CPU_PRICE
        lines.append(f"{customer},{calls},{cpu_us // 1000},{price:.4f}")
    return lines


async def main(address: str, count: int) -> None:
    async with settee.AsyncClient(address) as client:
        before = await asyncio.to_thread(costs, address)
        shown = [asyncio.create_task(asyncio.to_thread(first_line, address, name)) for name in (GREEDY, "customer-1")]
        greedy = [asyncio.create_task(be_greedy(client)) for _ in range(20)]
        turn = asyncio.Semaphore(AT_ONCE)
        others = [work(client, f"customer-{number}", turn) for number in range(1, count)]
        times = sorted(await asyncio.gather(*others))
        ends = await asyncio.gather(*greedy)
        print("customer,calls,cpu_ms,price")
        after = await asyncio.to_thread(costs, address)
        print("\n".join(invoice(before, after)))
        told = {end: ends.count(end) for end in sorted(set(ends))}
        print(f"{GREEDY}: {told}; the others waited {times[-1]:.3f} s at most", file=sys.stderr)
        for line in await asyncio.gather(*shown):
            print(line, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
