"""A program that uses the types: tests check it with mypy, and run it against a service."""

from __future__ import annotations

import asyncio
import os
from typing import List, Optional

import settee

UNIX = os.environ["SETTEE_UNIX"]


def told(error: settee.SetteeError) -> str:
    if isinstance(error, settee.Unavailable):
        return f"away: {error.reason}"
    wait: Optional[int] = error.retry_after_ms
    return f"{error.name}, {error.fault}, {error.retry}, {wait}"


with settee.Client(UNIX, call_seconds=60) as client:
    rows: List[List[List[List[object]]]] = client.map(["function(doc) { emit(doc.n, 1) }"], [{"_id": "a", "n": 7}], db="shop")
    assert rows == [[[[7, 1]]]]
    for one in client.map(["function(doc) { emit(doc.n, 1) }"], iter([{"_id": "a", "n": 7}]), db="shop"):
        assert one == [[[7, 1]]]
    report: settee.Report = client.map([], [], report=True, timeout=5.0)
    assert report.pool == "javascript"
    try:
        client.compile("function(")
        raise AssertionError
    except settee.CompilationError as error:
        assert told(error) == "compilation_error, client, False, None"
    with client.lease("javascript", db="shop") as proc:
        pid: Optional[int] = proc.os_pid
        assert proc.prompt(["reset"]) and pid != 0


async def main() -> None:
    async with settee.AsyncClient(UNIX) as client:
        assert await client.map(["function(doc) { emit(doc.n, 1) }"], [{"_id": "a", "n": 7}]) == [[[[7, 1]]]]
        async for rows in client.map(["function(doc) { emit(doc.n, 1) }"], iter([{"_id": "a", "n": 7}])):
            assert rows == [[[7, 1]]]
        assert await client.reduce(["_count"], [[["a", "a"], 1]]) == [1]
        async with client.lease("javascript") as proc:
            assert await proc.prompt(["reset"])


asyncio.run(main())
