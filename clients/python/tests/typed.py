"""A program that uses the types: a test checks it with mypy, and runs it against a service."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Literal, Optional, Tuple

import settee

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value, kind):
        return value


UNIX = os.environ["SETTEE_UNIX"]


def describe(error: settee.SetteeError) -> str:
    if isinstance(error, settee.Unavailable):
        return f"away: {error.reason}"
    wait: Optional[int] = error.retry_after_ms
    return f"{error.name}, {error.fault}, {error.retry}, {wait}"


with settee.Client(UNIX, call_seconds=60) as client:
    rows: List[List[List[List[object]]]] = client.map(["function(doc) { emit(doc.n, 1) }"], [{"_id": "a", "n": 7}], db="shop")
    assert rows == [[[[7, 1]]]]
    for one in client.map(["function(doc) { emit(doc.n, 1) }"], iter([{"_id": "a", "n": 7}]), db="shop"):
        assert one == [[[7, 1]]]
    report = assert_type(client.map([], [], report=True, timeout=5.0), "settee.Report[List[List[List[List[Any]]]]]")
    assert report.pool == "javascript"
    counted = client.reduce(["_count"], [[["a", "a"], 1]], report=True, db="shop")
    assert assert_type(counted, "settee.Report[List[Any]]").value == [1]
    try:
        client.compile("function(")
        raise AssertionError
    except settee.CompilationError as error:
        assert describe(error) == "compilation_error, client, False, None"
    with client.lease("javascript", db="shop") as proc:
        pid: Optional[int] = proc.os_pid
        assert proc.prompt(["reset"]) and pid != 0


async def kinds(client: settee.Client, other: settee.AsyncClient, ddoc: Dict[str, Any]) -> None:
    """The type that every method returns: only values made by functions are ``Any``."""
    assert_type(client.map([], []), List[List[List[List[Any]]]])
    assert_type(client.map([], iter([])), Iterator[List[List[List[Any]]]])
    assert_type(client.reduce([], []), List[Any])
    assert_type(client.rereduce([], []), List[Any])
    assert_type(client.compile(""), Literal[True])
    assert_type(client.select({}, []), List[Dict[str, Any]])
    assert_type(client.filter("shop", ddoc, "f", []), List[bool])
    assert_type(client.filter_view("shop", ddoc, "f", []), List[bool])
    assert_type(client.validate("shop", ddoc, []), List[settee.Verdict])
    assert_type(client.show("shop", ddoc, "s"), settee.Response)
    assert_type(client.update("shop", ddoc, "u"), Tuple[Optional[Dict[str, Any]], settee.Response])
    assert_type(client.rewrite("shop", ddoc, {}), Optional[settee.Rewritten])
    assert_type(client.list("shop", ddoc, "l", []), settee.Chunks)
    assert_type(client.list("shop", ddoc, "l", []).response["code"], int)
    assert_type(client.ps()["procs"][0]["os_pid"], Optional[int])
    assert_type(client.kill("javascript/1")["how"], Literal["killed", "told", "ending"])
    assert_type(client.health()["problems"][0]["remedy"], str)
    assert_type(client.health(fleet=True)["daemons"], List[settee.Health])
    assert_type(client.pools()["pools"][0]["group"], Optional[str])
    assert_type(client.tenants(sort="cpu")["tenants"][0]["cpu_us"], int)
    assert_type(client.jobs(states="failed")["jobs"][0]["state"], str)
    assert_type(client.get_proc("javascript").ret_proc(), bool)
    assert_type(await other.ps(), settee.Processes)
    assert_type(await other.list("shop", ddoc, "l", []), settee.AsyncChunks)
    assert_type(await other.show("shop", ddoc, "s", report=True), "settee.Report[settee.Response]")
    assert_type(await other.map([], []), List[List[List[List[Any]]]])


async def main() -> None:
    async with settee.AsyncClient(UNIX) as client:
        assert await client.map(["function(doc) { emit(doc.n, 1) }"], [{"_id": "a", "n": 7}]) == [[[[7, 1]]]]
        async for rows in client.map(["function(doc) { emit(doc.n, 1) }"], iter([{"_id": "a", "n": 7}])):
            assert rows == [[[7, 1]]]
        assert await client.reduce(["_count"], [[["a", "a"], 1]]) == [1]
        async with client.lease("javascript") as proc:
            assert await proc.prompt(["reset"])


asyncio.run(main())
