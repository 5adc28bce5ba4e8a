"""A product with hundreds of customers whose functions it runs: limits, invoices and logs.

    settee serve --config settee.toml
    python3 customers.py settee.sock 500

A customer has a database, and functions of his own. What he may have at a time stands in settee.toml; what he has cost is
counted by Settee. The first customer does what nobody should: his functions never end. The others do not notice. Each
can be shown what his functions log, and the errors that they end with.
"""

import asyncio
import sys
import time
from typing import Any, AsyncIterator, Dict, List

import settee

# What a customer pays: for a thousand calls, and for a second of processor time.
CALLS_PRICE, CPU_PRICE = 0.10, 0.02

# How many customers call at a time.
AT_ONCE = 16

GREEDY = "customer-0"
ENDLESS = "function(doc) { for (;;); }"
DOCS = [{"_id": str(number), "total": number} for number in range(20)]
VIEW = "function(doc) { if (!doc.total) log('no total: ' + doc._id); emit('%s', doc.total) }"

Costs = Dict[str, Dict[str, Any]]


async def costs(client: settee.AsyncClient) -> Costs:
    """What each customer has cost since Settee began to count. A product saves it at the first of each month."""
    page = await client.call("tenants")
    return {row["db"]: row for row in page["tenants"] if row["db"]}


async def be_greedy(client: settee.AsyncClient) -> str:
    """One of the calls that never end. Returns what became of it."""
    try:
        await client.map([ENDLESS], DOCS[:1], db=GREEDY)
    except settee.Busy:
        return "refused"
    except settee.CallTimeout:
        return "out of time"
    return "answered"


async def work(client: settee.AsyncClient, customer: str, turn: asyncio.Semaphore) -> float:
    """What a customer does: his view over his documents. Returns the seconds that it took."""
    async with turn:
        begun = time.monotonic()
        rows = await client.map([VIEW % customer], DOCS, db=customer)
        assert len(rows) == len(DOCS)
        return time.monotonic() - begun


async def log(client: settee.AsyncClient, customer: str) -> AsyncIterator[Dict[str, Any]]:
    """What a customer's functions log and the errors that they end with, as it comes: a stream for him."""
    since = 0
    while True:
        page = await client.call("tenant_log", db=customer, since=since)
        since = page["last"]
        for line in page["lines"]:
            yield line
        if not page["lines"]:
            await asyncio.sleep(0.5)


async def first_line(client: settee.AsyncClient, customer: str) -> str:
    """Waits for the first line of a customer's log."""
    async for line in log(client, customer):
        return "%(kind)s: %(message)s" % line
    return ""


def invoice(before: Costs, after: Costs) -> List[str]:
    """Lines of what each customer owes for the time between: name, calls, milliseconds of processor time, price."""
    lines = []
    for customer, row in sorted(after.items()):
        old = before.get(customer, {"calls": 0, "cpu_us": 0})
        calls, cpu_us = row["calls"] - old["calls"], row["cpu_us"] - old["cpu_us"]
        price = calls * CALLS_PRICE / 1000 + cpu_us / 1e6 * CPU_PRICE
        lines.append(f"{customer},{calls},{cpu_us // 1000},{price:.4f}")
    return lines


async def main(address: str, count: int) -> None:
    async with settee.AsyncClient(address) as client:
        before = await costs(client)
        shown = [asyncio.create_task(first_line(client, customer)) for customer in (GREEDY, "customer-1")]
        greedy = [asyncio.create_task(be_greedy(client)) for _ in range(20)]
        turn = asyncio.Semaphore(AT_ONCE)
        others = [work(client, f"customer-{number}", turn) for number in range(1, count)]
        times = sorted(await asyncio.gather(*others))
        ends = await asyncio.gather(*greedy)
        print("customer,calls,cpu_ms,price")
        print("\n".join(invoice(before, await costs(client))))
        told = {end: ends.count(end) for end in sorted(set(ends))}
        print(f"{GREEDY}: {told}; the others waited {times[-1]:.3f} s at most", file=sys.stderr)
        for line in await asyncio.gather(*shown):
            print(line, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
