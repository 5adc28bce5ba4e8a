#!/usr/bin/env python3
"""Writes orders.ndjson: orders of a small shop, the same ones every time.

Usage: python3 generate.py [COUNT] > orders.ndjson
"""

import json
import random
import sys

CUSTOMERS = ["Alma", "Björn", "Chloé", "Dmitri", "Eun-ji", "Fatima", "Gökhan", "Håkon", "Inés", "João"]
ARTICLES = [("tea", 4.5), ("coffee", 7.25), ("cup", 9), ("kettle", 39.9), ("biscuits", 3.2), ("honey", 6)]
STATES = ["paid", "paid", "paid", "open", "returned"]


def order(number, chance):
    lines = []
    for article, price in chance.sample(ARTICLES, chance.randint(1, 4)):
        lines.append({"article": article, "price": price, "quantity": chance.randint(1, 5)})
    return {
        "_id": f"order-{number:06}",
        "_rev": f"1-{chance.getrandbits(128):032x}",
        "type": "order",
        "customer": chance.choice(CUSTOMERS),
        "date": [2026, chance.randint(1, 12), chance.randint(1, 28)],
        "state": chance.choice(STATES),
        "lines": lines,
    }


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    chance = random.Random(1)
    for number in range(1, count + 1):
        print(json.dumps(order(number, chance), ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
