"""A product with hundreds of customers whose functions it runs: limits and invoices.

    settee serve --config settee.toml
    python3 customers.py settee.sock 500

A customer has a database, and functions of his own. What he may have at a time stands in settee.toml; what he has cost is
counted by Settee. The first customer does what nobody should: his functions never end. The others do not notice.
"""

import asyncio
import sys
import time
from typing import Any, Dict, List

import settee

# What a customer pays: for a thousand calls, and for a second of processor time.
CALLS_PRICE, CPU_PRICE = 0.10, 0.02

# How many customers call at a time.
AT_ONCE = 16

GREEDY = "customer-0"
ENDLESS = "function(doc) { for (;;); }"
DOCS = [{"_id": str(number), "total": number} for number in range(20)]

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
        view = "function(doc) { emit('%s', doc.total) }" % customer
        rows = await client.map([view], DOCS, db=customer)
        assert len(rows) == len(DOCS)
        return time.monotonic() - begun


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
        greedy = [asyncio.create_task(be_greedy(client)) for _ in range(20)]
        turn = asyncio.Semaphore(AT_ONCE)
        others = [work(client, f"customer-{number}", turn) for number in range(1, count)]
        times = sorted(await asyncio.gather(*others))
        ends = await asyncio.gather(*greedy)
        print("customer,calls,cpu_ms,price")
        print("\n".join(invoice(before, await costs(client))))
        told = {end: ends.count(end) for end in sorted(set(ends))}
        print(f"{GREEDY}: {told}; the others waited {times[-1]:.3f} s at most", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
