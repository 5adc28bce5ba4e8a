"""Every call, over every transport, from threads and from asyncio."""

import asyncio
import contextlib
import functools
import http.server
import json
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
import unittest
import warnings
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import settee
from settee.stream import BATCH_BYTES_MAX
from tests.support import ADDRESSES, DEADLINE, HTTP, TABLE, TCP, UNIX, counting, described, scripted, with_ddoc

COUNT = "function(doc) { emit(doc._id, 1) }"
STREAM_DOCS_MAX = 300


class Calls(unittest.TestCase):
    def test_every_call_returns_its_value(self):
        for address in ADDRESSES:
            with settee.Client(address) as client:
                for method, arguments, options, expected in TABLE["calls"]:
                    with self.subTest(address=address, method=method):
                        value = getattr(client, method)(*with_ddoc(arguments), **options)
                        self.assertEqual(list(value) if method == "list" else value, expected)

    def test_every_error_has_its_class_fault_and_retry_flag(self):
        for address in ADDRESSES:
            with settee.Client(address) as client:
                for method, arguments, options, expected in TABLE["errors"]:
                    with self.subTest(address=address, method=method):
                        with self.assertRaises(settee.ServiceError) as raised:
                            getattr(client, method)(*with_ddoc(arguments), **options)
                        self.assertEqual(described(raised.exception, expected), expected)

    def test_a_list_has_its_response_and_its_rows_may_be_a_generator_that_makes_calls(self):
        def rows(client):
            for number in range(3):
                [[[[key, _]]]] = client.map([COUNT], [{"_id": str(number)}], db="shop")
                yield {"key": key}

        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client:
                options = {"head": {"total_rows": 3}, "req": {"query": {"end": "."}}}
                page = client.list("shop", TABLE["ddoc"], "keys", rows(client), **options)
                self.assertEqual(page.response, {"headers": {"X-Total": "3"}})
                self.assertEqual(list(page), ["0", "1", "2", "."])

    def test_a_list_over_http_yields_chunks_before_it_has_all_rows(self):
        read = threading.Event()

        def rows():
            yield {"key": "first"}
            assert read.wait(DEADLINE), "no chunk in time"
            yield {"key": "second"}

        with settee.Client(HTTP) as client:
            page = client.list("shop", TABLE["ddoc"], "keys", rows(), head={}, req={"query": {"end": "."}})
            self.assertEqual(next(page), "first")
            read.set()
            self.assertEqual(list(page), ["second", "."])

    def test_a_function_that_fails_after_its_first_chunk_fails_the_list(self):
        rows = [{"key": "first"}, {"key": "second"}]
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client:
                with self.assertRaises(settee.ServiceError) as raised:
                    list(client.list("shop", TABLE["ddoc"], "breaks", rows))
                error = raised.exception
                self.assertEqual((error.name, error.reason, error.fault), ("broken", "at the second row", "client"))

    def test_an_error_of_the_rows_is_raised_by_the_list(self):
        def rows():
            yield {"key": "first"}
            raise LookupError("no more rows")

        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client:
                with self.assertRaises(LookupError):
                    list(client.list("shop", TABLE["ddoc"], "keys", rows()))

    def test_a_wrong_password_fails_at_once(self):
        for address in (TCP, HTTP):
            with self.subTest(address=address):
                with settee.Client(address, user="ann", password="wrong") as client:
                    with self.assertRaises(settee.Unauthorized) as raised:
                        client.map([], [])
                    self.assertEqual((raised.exception.fault, raised.exception.retry), ("client", False))

    def test_calls_that_need_the_socket_are_refused_over_http(self):
        with settee.Client(HTTP) as client:
            for call in (lambda: client.call("status"), lambda: client.get_proc("javascript")):
                with self.assertRaises(settee.BadRequest):
                    call()

    def test_a_selection_that_matches_nothing_has_its_options_in_both_calls(self):
        seen = []

        def serve(lines, reply):
            for request in lines:
                seen.append((request["call"], request.get("pool")))
                reply({"id": request["id"], "ok": [[[]]]})

        with scripted(serve) as address, settee.Client(address) as client:
            self.assertEqual(client.select({"n": 1}, [{"_id": "a"}], pool="reports"), [])
        self.assertEqual(seen, [("map_docs", "reports"), ("validate_docs", "reports")])

    def test_a_hundred_threads_share_a_client(self):
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client, ThreadPoolExecutor(100) as threads:
                rows = threads.map(lambda id: client.map([COUNT], [{"_id": str(id)}], db="shop"), range(100))
                self.assertEqual(list(rows), [[[[[str(id), 1]]]] for id in range(100)])


@unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
class Forked(unittest.TestCase):
    """A client in a forked child."""

    def in_child(self, use):
        """Calls ``use`` in a forked child, and returns its result."""
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                signal.alarm(DEADLINE)
                with os.fdopen(writer, "w") as pipe:
                    pipe.write(json.dumps(use()))
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        return json.loads(text)

    def test_calls_continue_in_the_child_and_in_the_parent(self):
        for address in ADDRESSES:
            with settee.Client(address) as client, self.subTest(address):
                call = functools.partial(client.map, [COUNT], [{"_id": "a"}])
                rows = call()
                self.assertEqual([self.in_child(call), call(), self.in_child(call)], [rows, rows, rows])
                self.assertTrue(self.in_child(lambda: client.close() or True))
                self.assertEqual(call(), rows)

    def test_loans_stay_with_the_parent(self):
        def refused(act):
            with self.assertRaises(settee.BadRequest) as caught:
                act()
            return caught.exception.reason

        with settee.Client(UNIX) as client, client.lease("javascript") as proc:
            reason = self.in_child(lambda: refused(proc.reset))
            self.assertIn(f"belongs to process {os.getpid()}, which forked", reason)
            self.assertEqual(proc.prompt(["reset"]), True)

    def test_a_child_that_exits_leaves_the_calls_of_the_parent_alone(self):
        script = """if True:
            import os, sys, settee
            used, unused = (settee.Client(sys.argv[1], call_seconds=3) for _ in range(2))
            used.compile("function() {}")
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                for client in (used, unused):
                    client.compile("function() {}")
        """
        for address in ADDRESSES:
            command = [sys.executable, "-W", "ignore", "-c", script, address]
            done = subprocess.run(command, capture_output=True, timeout=DEADLINE)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""), address)


class AsyncCalls(unittest.IsolatedAsyncioTestCase):
    async def test_every_call_returns_its_value(self):
        for address in ADDRESSES:
            async with settee.AsyncClient(address) as client:
                for method, arguments, options, expected in TABLE["calls"]:
                    with self.subTest(address=address, method=method):
                        value = await getattr(client, method)(*with_ddoc(arguments), **options)
                        self.assertEqual([piece async for piece in value] if method == "list" else value, expected)

    async def test_a_hundred_concurrent_calls_get_their_own_results(self):
        for address in ADDRESSES:
            async with settee.AsyncClient(address) as client:
                calls = (client.map([COUNT], [{"_id": str(id)}], db="shop") for id in range(100))
                self.assertEqual(await asyncio.gather(*calls), [[[[[str(id), 1]]]] for id in range(100)])

    async def test_ten_thousand_calls_may_be_concurrent(self):
        # The other tests keep asyncio's debug mode, which records a stack for each task.
        asyncio.get_running_loop().set_debug(False)
        for address in (UNIX, TCP):
            async with settee.AsyncClient(address) as client:
                calls = (client.reduce(["_count"], [[["k", "a"], 1]]) for _ in range(10_000))
                self.assertEqual(await asyncio.gather(*calls), [[1]] * 10_000)

    async def test_a_hundred_calls_wait_on_one_connection_and_are_answered_in_any_order(self):
        connections = []

        def serve(lines, reply):
            connections.append(1)
            requests = [next(lines) for _ in range(100)]
            for request in reversed(requests):
                reply({"id": request["id"], "ok": request["docs"]})

        with scripted(serve) as address:
            async with settee.AsyncClient(address) as client:
                values = await asyncio.gather(*(client.map([], [number]) for number in range(100)))
                self.assertEqual(values, [[number] for number in range(100)])
        self.assertEqual(len(connections), 1)

    async def test_a_reply_nested_too_deeply_for_python_fails_only_its_own_call(self):
        def serve(lines, reply):
            deep, other = next(lines), next(lines)
            reply(b'{"id":%d,"ok":%b}' % (deep["id"], b"[" * 200_000 + b"]" * 200_000))
            reply({"id": other["id"], "ok": []})

        with scripted(serve) as address:
            async with settee.AsyncClient(address) as client:
                failed, value = await asyncio.gather(client.map([], []), client.map([], []), return_exceptions=True)
        self.assertIsInstance(failed, settee.ProtocolError)
        self.assertEqual(value, [])


class Cancelled(unittest.IsolatedAsyncioTestCase):
    ENDLESS = "function(doc) { for (;;); }"

    async def wait_until_used(self, client, count):
        """Waits until ``count`` processes are in use."""
        for _ in range(DEADLINE * 100):
            procs = (await client.ps("javascript"))["procs"]
            if sum(row["state"] in ("lent", "running") for row in procs) == count:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not {count} processes in time")

    async def test_a_cancelled_call_frees_its_process(self):
        async with settee.AsyncClient(UNIX) as watching:
            for address in ADDRESSES:
                async with settee.AsyncClient(address) as client:
                    with self.subTest(address=address):
                        calling = asyncio.ensure_future(client.map([self.ENDLESS], [{"_id": "a"}], db="shop"))
                        await self.wait_until_used(watching, 1)
                        calling.cancel()
                        with self.assertRaises(asyncio.CancelledError):
                            await calling
                        await self.wait_until_used(watching, 0)
                        self.assertEqual(await client.map([COUNT], [{"_id": "a"}], db="shop"), [[[["a", 1]]]])

    async def test_a_call_that_times_out_frees_only_its_own_process(self):
        async with settee.AsyncClient(UNIX, call_seconds=1) as client, settee.AsyncClient(UNIX) as watching:
            async with client.lease("javascript", db="shop") as proc:
                with self.assertRaises(settee.CallTimeout):
                    await client.map([self.ENDLESS], [{"_id": "a"}], db="shop")
                await self.wait_until_used(watching, 1)
                self.assertTrue(await proc.prompt(["reset"]))
            await self.wait_until_used(watching, 0)


class Flow:
    """Documents, taken one by one, and the number of those whose rows are still missing."""

    def __init__(self, count):
        self.count, self.in_flight, self.in_flight_max = count, 0, 0

    def docs(self):
        for number in range(self.count):
            self.in_flight += 1
            self.in_flight_max = max(self.in_flight_max, self.in_flight)
            yield {"_id": str(number)}

    async def async_docs(self):
        for doc in self.docs():
            yield doc

    def receive(self, rows):
        number = self.count - self.left()
        assert rows == [[[str(number), 1]]], (number, rows)
        self.rows_received = number + 1
        self.in_flight -= 1

    def left(self):
        return self.count - getattr(self, "rows_received", 0)


class Streams(unittest.TestCase):
    def test_a_hundred_thousand_documents_are_mapped_in_order_with_few_in_flight(self):
        flow = Flow(100_000)
        with settee.Client(UNIX) as client:
            for rows in client.map([COUNT], flow.docs(), db="shop"):
                flow.receive(rows)
        self.assertEqual(flow.left(), 0)
        self.assertLessEqual(flow.in_flight_max, STREAM_DOCS_MAX)

    def test_any_iterable_is_mapped(self):
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client:
                docs = {number: {"_id": str(number)} for number in range(250)}
                rows = list(client.map([COUNT], docs.values(), db="shop"))
                self.assertEqual(rows, [[[[str(number), 1]]] for number in range(250)])
                self.assertEqual(list(client.map([COUNT], iter([]))), [])

    def test_documents_may_come_from_calls_and_rows_arrive_before_the_last_document(self):
        with settee.Client(UNIX) as client:
            flow = Flow(10**9)
            docs = ({"_id": doc["_id"], "n": client.reduce(["_count"], [[["a", "a"], 1]])} for doc in flow.docs())
            rows = client.map([COUNT], docs, db="shop")
            self.assertEqual(next(rows), [[["0", 1]]])
            rows.close()
            self.assertLessEqual(flow.in_flight_max, STREAM_DOCS_MAX)

    def test_large_documents_are_sent_in_smaller_batches(self):
        asked = []

        def serve(lines, reply):
            for request in lines:
                asked.append(len(request["docs"]))
                reply({"id": request["id"], "ok": [[[]] for _ in request["docs"]]})

        with scripted(serve) as address, settee.Client(address) as client:
            docs = ({"_id": str(number), "text": "x" * (BATCH_BYTES_MAX // 2)} for number in range(4))
            self.assertEqual(len(list(client.map([COUNT], docs))), 4)
        self.assertEqual(asked, [2, 2])

    def test_a_stream_of_a_closed_client_fails(self):
        client = settee.Client(UNIX)
        rows = client.map([COUNT], Flow(10**9).docs(), db="shop")
        next(rows)
        client.close()
        with self.assertRaises(settee.ClientClosed):
            list(rows)

    def test_rows_before_an_error_are_returned_first(self):
        def docs():
            yield {"_id": "a"}
            yield {"_id": "b"}
            raise LookupError("no more documents")

        with settee.Client(UNIX) as client:
            rows = client.map([COUNT], docs(), db="shop")
            self.assertEqual([next(rows), next(rows)], [[[["a", 1]]], [[["b", 1]]]])
            with self.assertRaises(LookupError):
                next(rows)
            with self.assertRaises(settee.CompilationError):
                list(client.map(["function("], iter([{"_id": "a"}])))
            with self.assertRaises(settee.BadRequest):
                client.map([COUNT], iter([]), report=True)


class AsyncStreams(unittest.IsolatedAsyncioTestCase):
    async def test_many_documents_are_mapped_in_order_with_few_in_flight(self):
        async with settee.AsyncClient(UNIX) as client:
            for docs in (Flow.docs, Flow.async_docs):
                flow = Flow(10_000)
                async for rows in client.map([COUNT], docs(flow), db="shop"):
                    flow.receive(rows)
                self.assertEqual(flow.left(), 0)
                self.assertLessEqual(flow.in_flight_max, STREAM_DOCS_MAX)

    async def test_rows_of_a_document_are_returned_before_the_next_document_is_taken(self):
        read = asyncio.Queue()

        async def docs():
            for number in range(3):
                yield {"_id": str(number)}
                await asyncio.wait_for(read.get(), DEADLINE)

        for address in ADDRESSES:
            async with settee.AsyncClient(address) as client:
                seen = []
                async for [[[key, _]]] in client.map([COUNT], docs(), db="shop"):
                    seen.append(key)
                    read.put_nowait(key)
                self.assertEqual(seen, ["0", "1", "2"])

    async def test_rows_before_an_error_are_returned_first(self):
        async def docs():
            yield {"_id": "a"}
            raise LookupError("no more documents")

        async with settee.AsyncClient(UNIX) as client:
            seen = []
            with self.assertRaises(LookupError):
                async for rows in client.map([COUNT], docs(), db="shop"):
                    seen.append(rows)
            self.assertEqual(seen, [[[["a", 1]]]])
            with self.assertRaises(settee.CompilationError):
                async for _ in client.map(["function("], iter([{"_id": "a"}])):
                    pass

    async def test_a_stream_that_has_failed_begins_no_further_call(self):
        asked, taken = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        calls = []

        def serve(lines, reply):
            for request in lines:
                calls.append(request["call"])
                loop.call_soon_threadsafe(asked.set)
                asyncio.run_coroutine_threadsafe(taken.wait(), loop).result()
                reply({"id": request["id"], "error": {"name": "compilation_error", "reason": "no"}})

        async def docs():
            yield {"_id": "a"}
            await asked.wait()
            with mock.patch("settee.stream.BATCH_SECONDS_MAX", DEADLINE):
                yield {"_id": "b"}
            taken.set()
            await asyncio.Event().wait()

        with scripted(serve) as address:
            async with settee.AsyncClient(address) as client:
                for failing in (client.map([COUNT], docs()).__anext__(), client.call("last")):
                    with self.assertRaises(settee.CompilationError):
                        await asyncio.wait_for(failing, DEADLINE)
        self.assertEqual(calls, ["map_docs", "last"])

    async def test_a_stream_that_is_closed_early_has_few_documents_in_flight(self):
        async with settee.AsyncClient(UNIX) as client:
            flow = Flow(10**9)
            rows = client.map([COUNT], flow.async_docs(), db="shop")
            self.assertEqual(await rows.__anext__(), [[["0", 1]]])
            await rows.aclose()
            self.assertLessEqual(flow.in_flight_max, STREAM_DOCS_MAX)


class Reports(unittest.TestCase):
    MEMBERS = {
        "request_id": "r-1",
        "pool": "javascript",
        "logs": [{"level": "info", "message": "hello"}],
        "logs_dropped": 2,
        "errors": [{"function": 0, "doc": "a", "name": "TypeError", "message": "m", "line": 3}],
        "errors_dropped": 1,
        "cost": {"wait_us": 12},
    }

    def test_a_report_has_the_value_and_the_logs_errors_and_cost_of_the_call(self):
        def serve(lines, reply):
            for request in lines:
                own = {"request_id": request["request_id"]} if request["report"] else {}
                reply({"id": request["id"], "ok": [[[]]], **self.MEMBERS, **own})

        with scripted(serve) as address, settee.Client(address) as client:
            report = client.map([COUNT], [{"_id": "a"}], report=True, request_id="r-2")
            self.assertEqual(vars(report), {**self.MEMBERS, "value": [[[]]], "request_id": "r-2"})

    def test_an_error_has_the_report_of_its_call(self):
        def serve(lines, reply):
            for request in lines:
                error = {"name": "compilation_error", "reason": "no", "shifted": True}
                reply({"id": request["id"], "error": error, **self.MEMBERS})

        with scripted(serve) as address, settee.Client(address) as client:
            with self.assertRaises(settee.CompilationError) as raised:
                client.compile("function(", report=True)
            self.assertEqual(vars(raised.exception.report), {**self.MEMBERS, "value": None})
            self.assertTrue(raised.exception.shifted)

    def test_the_service_returns_reports(self):
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client:
                report = client.map(["function(doc) { log('hello'); emit(1) }"], [{"_id": "a"}], report=True)
                self.assertEqual((report.value, report.logs[0]["message"]), ([[[[1, None]]]], "hello"))


class Mistakes(unittest.TestCase):
    def test_another_server_is_a_protocol_error_that_is_not_retried(self):
        def serve(lines, reply):
            next(lines)
            reply("HTTP/1.1 400 Bad Request")

        with scripted(serve) as address, settee.Client(address) as client:
            with self.assertRaises(settee.ProtocolError) as raised:
                client.map([], [])
            self.assertFalse(raised.exception.retry)

    def test_an_error_without_an_id_fails_the_pending_calls(self):
        def serve(lines, reply):
            next(lines)
            reply({"id": None, "error": {"name": "line_too_long", "reason": "too long", "fault": "client"}})

        with scripted(serve) as address, settee.Client(address) as client:
            with self.assertRaises(settee.ServiceError) as raised:
                client.map([], [])
            self.assertEqual(raised.exception.name, "line_too_long")

    def test_a_call_above_the_bound_of_the_service_fails_before_it_is_sent_and_affects_no_other(self):
        huge = {"_id": "a", "text": "x" * (5 << 20)}
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address, retry_for=60) as client:
                proc = None if address == HTTP else client.get_proc("javascript")
                key = "body_max" if address == HTTP else "line_max"
                reason = rf"^bad_request: the call has 5\d{{6}} bytes, more than the 4194304 bytes .*\[server\] {key}.*: send less"
                with ThreadPoolExecutor(1) as threads:
                    other = threads.submit(client.map, [COUNT], [{"_id": "b"}], db="shop")
                    with self.assertRaisesRegex(settee.BadRequest, reason):
                        client.map([COUNT], [huge])
                    self.assertEqual(other.result(), [[[["b", 1]]]])
                if proc:
                    with self.assertRaisesRegex(settee.BadRequest, reason):
                        proc.prompt(["map_doc", huge])
                    self.assertTrue(proc.reset())
                    self.assertTrue(proc.ret_proc())
                large = {"_id": "a", "text": "x" * (3 << 20)}
                self.assertEqual(client.map([COUNT], [large], db="shop"), [[[["a", 1]]]])

    def test_a_long_design_document_is_sent_once_and_then_named_by_its_digest(self):
        ddoc = {**TABLE["ddoc"], "text": "\u00e9" * (1 << 18)}
        for address in (TCP, HTTP):
            with counting(address) as (address, sent), settee.Client(address) as client:
                for _ in range(10):
                    self.assertEqual(client.show("shop", ddoc, "name", req={"query": {"end": "!"}})["body"], "nobody!")
                    self.assertEqual(client.filter_view("shop", ddoc, "by_n", [{"_id": "a", "n": 7}]), [True])
                # Each letter takes six bytes.
                self.assertTrue(6 << 18 < sent[0] < 7 << 18, sent)
                client.show("till", ddoc, "name", req={"query": {"end": "!"}})
                self.assertTrue(12 << 18 < sent[0] < 13 << 18, sent)

    def test_a_service_that_does_not_know_a_digest_gets_the_text_and_an_old_one_gets_no_digest(self):
        ddoc = {"_id": "_design/d", "text": "x" * 2000}
        forgets = {"name": "unknown_ddoc", "reason": "", "fault": "client", "retry": False}
        for limits, expected in (({}, "tttt"), ({"ddoc_sha256": True}, "tddtd")):
            seen = []

            def serve(lines, reply):
                for request in lines:
                    short = "sha256" in request["ddoc"]
                    seen.append("d" if short else "t")
                    is_third = len(seen) == 3 and short
                    reply({"id": request["id"], **({"error": forgets} if is_third else {"ok": True})})

            with scripted(serve, 64 << 20, **limits) as address, settee.Client(address) as client:
                for _ in range(4):
                    self.assertTrue(client.rewrite("shop", ddoc, {}))
            self.assertEqual("".join(seen), expected)

    def test_calls_keep_their_order_while_the_bound_is_requested_and_an_old_service_has_a_default(self):
        for line_max, expected in ((3000, [2000, 1]), (None, [2000, 1, 5000])):
            sizes = []

            def serve(lines, reply):
                for request in lines:
                    sizes.append(len(request["text"]))
                    reply({"id": request["id"], "ok": True})

            async def call(address):
                async with settee.AsyncClient(address) as client:
                    await asyncio.gather(*(client.call("x", text="x" * size) for size in (2000, 1)))
                    await client.call("x", text="x" * 5000)

            with scripted(serve, line_max) as address:
                with self.assertRaises(settee.BadRequest) if line_max else contextlib.nullcontext():
                    asyncio.run(call(address))
            self.assertEqual(sizes, expected)

    def test_a_list_of_a_silent_service_times_out(self):
        over = threading.Event()
        with scripted(lambda lines, reply: over.wait(DEADLINE)) as address:
            address = address.replace("tcp:", "http://")
            with settee.Client(address, call_seconds=0.05) as client, self.assertRaises(settee.Unavailable):
                client.list("shop", TABLE["ddoc"], "keys", [])
            over.set()

    def test_a_call_to_a_silent_service_times_out(self):
        with scripted(lambda lines, reply: list(lines)) as address:
            with settee.Client(address, call_seconds=0.05) as client, self.assertRaises(settee.CallTimeout) as raised:
                client.map([], [])
            self.assertEqual((raised.exception.phase, raised.exception.retry), ("reply", True))

    def test_an_unserializable_argument_raises_a_type_error_that_names_the_member(self):
        circle = {"_id": "a", "inner": {}}
        circle["inner"]["again"] = circle
        for doc, member in (({"_id": "a", "n": {1}}, "docs[1].n"), ({"n": float("nan")}, "docs[1].n"), (circle, "docs[1].inner.again")):
            for address in ADDRESSES:
                with settee.Client(address) as client, self.assertRaisesRegex(TypeError, f"cannot send '{re.escape(member)}'"):
                    client.map([COUNT], [{"_id": "b"}, doc])

    def test_integers_of_any_size_are_exact_both_ways(self):
        for number in (2**53 + 1, -(2**64), 10**300):
            for address in ADDRESSES:
                with self.subTest(address=address, number=number), settee.Client(address) as client:
                    self.assertEqual(client.reduce(["_first"], [[["k", "a"], number]], finalize=True), [number])

    def test_a_timeout_must_be_positive(self):
        with settee.Client(UNIX) as client:
            for timeout in (0, -1, float("nan")):
                with self.assertRaisesRegex(settee.BadRequest, "more than 0 seconds"):
                    client.map([COUNT], [], timeout=timeout)

    def test_a_program_that_ends_without_closing_prints_no_warning(self):
        script = """if True:
            import sys, settee
            client, unused = settee.Client(sys.argv[1]), settee.Client(sys.argv[1])
            next(client.map(sys.argv[2:], ({"_id": str(number)} for number in range(10_000))))
        """
        for address in ADDRESSES:
            done = subprocess.run([sys.executable, "-c", script, address, COUNT], capture_output=True, timeout=DEADLINE)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""), address)

    def test_an_unknown_option_raises_a_type_error(self):
        with settee.Client(UNIX) as client, self.assertRaises(TypeError):
            client.map([], [], tiemout=1)

    def test_an_invalid_address_is_refused_when_the_client_is_created(self):
        wrong = {
            "localhost:5994": "no known scheme",
            "localhost": "no known scheme",
            "ftp://localhost/": "no known scheme",
            "tcp:localhost": "no port",
            "tcp:localhost:port": "cannot be read",
            "http://:5995/": "no host",
        }
        for address, reason in wrong.items():
            for kind in (settee.Client, settee.AsyncClient):
                with self.subTest(address=address), self.assertRaises(settee.BadRequest) as raised:
                    kind(address)
                self.assertEqual(raised.exception.fault, "client")
                self.assertIn(f"the address {address!r}", str(raised.exception))
                self.assertIn(reason, str(raised.exception))

    def test_the_error_of_a_refused_address_has_no_password(self):
        for address in ("tcp:ann:s3cret@host", "tcp:ann:s3cret@host:port", "tcp:ann:s3cret/@host:1", "tcp:ann:s3cret\n@host", "ftp://ann:s3cret@host/"):
            with self.subTest(address=address), self.assertRaisesRegex(settee.BadRequest, "host") as raised:
                settee.Client(address)
            self.assertNotIn("s3cret", str(raised.exception))

    def test_a_relative_path_to_a_socket_is_accepted(self):
        folder, name = os.path.split(UNIX.partition(":")[2])
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        with settee.Client(name) as client:
            self.assertTrue(client.compile("function() {}"))

    def test_the_error_names_an_address_where_nothing_listens(self):
        missing = UNIX + ".missing"
        with settee.Client(missing, retry_for=0) as client:
            with self.assertRaises(settee.Unavailable) as raised:
                client.map([], [])
            self.assertIn(f"there is no socket at {missing}", str(raised.exception))
            with self.assertRaises(settee.Unavailable) as raised:
                client.health()
            self.assertIn(f"{missing}.http.sock".replace("unix:", ""), str(raised.exception))
        with socketserver.TCPServer(("127.0.0.1", 0), None) as server:
            port = server.server_address[1]
        for address in (f"tcp:127.0.0.1:{port}", f"http://127.0.0.1:{port}/"):
            with settee.Client(address, retry_for=0) as client, self.assertRaises(settee.Unavailable) as raised:
                client.map([], [])
            self.assertIn(f"127.0.0.1:{port}", str(raised.exception))
            self.assertFalse(raised.exception.details["sent"])


class Retries(unittest.TestCase):
    BUSY = {"name": "pool_busy", "reason": "too many wait", "fault": "settee", "retry": True}

    def refusing(self, times, error):
        """A service that refuses the first ``times`` calls."""
        tries = []

        def serve(lines, reply):
            for request in lines:
                tries.append(request["call"])
                is_over = len(tries) > times
                reply({"id": request["id"], **({"ok": []} if is_over else {"error": error})})

        return tries, scripted(serve)

    def test_a_retryable_error_is_retried_within_retry_for(self):
        for error in (self.BUSY, {**self.BUSY, "retry_after_ms": 1}, {"name": "shutting_down", "reason": "it ends"},
                      {"name": "draining", "reason": "it rests"}):
            tries, service = self.refusing(2, error)
            with self.subTest(error=error), service as address, settee.Client(address, retry_for=DEADLINE) as client:
                self.assertEqual(client.map([], []), [])
                self.assertEqual(len(tries), 3)

    @contextlib.contextmanager
    def refusing_over_http(self, times, error):
        """The same over HTTP. Closes each connection after an answer without announcing it."""
        tries = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                tries.append(self.path)
                is_over = len(tries) > times
                body = json.dumps({"ok": []} if is_over else error).encode()
                self.send_response(200 if is_over else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = True

            do_GET = do_DELETE = do_POST

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            try:
                yield tries, f"http://127.0.0.1:{server.server_address[1]}/"
            finally:
                server.shutdown()

    def test_calls_to_a_stopping_service_are_retried_over_http_too(self):
        with self.refusing_over_http(1, {"error": "shutting_down", "reason": "it ends"}) as (tries, address):
            with settee.Client(address) as client:
                self.assertEqual(client.map([], []), [])
        self.assertEqual(len(tries), 2)

    def test_a_query_to_a_busy_service_is_retried_and_a_kill_is_not(self):
        busy = {"error": "too_many_requests", "reason": "no room"}
        with self.refusing_over_http(2, busy) as (tries, address), settee.Client(address, retry_for=DEADLINE) as client:
            self.assertEqual(client.ps(), {"ok": []})
            self.assertEqual(len(tries), 3)
        with self.refusing_over_http(2, busy) as (tries, address), settee.Client(address, retry_for=DEADLINE) as client:
            with self.assertRaises(settee.Busy):
                client.kill("javascript/1")
            self.assertEqual(tries, ["/_procs/javascript/1?"])

    def test_a_kill_does_not_reuse_a_connection_that_the_service_may_have_closed(self):
        with self.refusing_over_http(0, {}) as (tries, address), settee.Client(address) as client:
            self.assertEqual(client.map([], []), [])
            self.assertEqual(client.kill("javascript/1", now=True), {"ok": []})
            self.assertEqual(tries[1:], ["/_procs/javascript/1?now=true"])

    def test_a_call_that_must_not_be_repeated_reuses_no_connection_that_the_service_may_have_closed(self):
        with self.refusing_over_http(0, {}) as (_, address), settee.Client(address) as client:
            self.assertEqual([client.call("index_docs"), client.call("index_docs")], [[], []])

    def test_a_retryable_error_is_raised_at_once_unless_retry_for_is_positive(self):
        for options in ({}, {"retry_for": 0}):
            tries, service = self.refusing(2, self.BUSY)
            with self.subTest(options=options), service as address, settee.Client(address, **options) as client:
                with self.assertRaises(settee.Busy):
                    client.map([], [])
                self.assertEqual(len(tries), 1)

    def test_a_call_fails_with_the_last_error_when_retry_for_is_over(self):
        for error in (self.BUSY, {**self.BUSY, "retry_after_ms": 1000 * DEADLINE}):
            tries, service = self.refusing(10**9, error)
            with self.subTest(error=error), service as address, settee.Client(address, retry_for=0.3) as client:
                with self.assertRaises(settee.Busy):
                    client.map([], [])
                self.assertEqual(len(tries) > 1, error == self.BUSY)

    def test_mistakes_and_calls_that_must_not_be_repeated_are_not_retried(self):
        calls = (
            (settee.BadRequest, {"name": "bad_request", "reason": "no"}, lambda client: client.map([], [])),
            (settee.Busy, self.BUSY, lambda client: client.call("index_docs")),
        )
        for kind, error, call in calls:
            tries, service = self.refusing(2, error)
            with self.subTest(error=error), service as address, settee.Client(address, retry_for=DEADLINE) as client:
                with self.assertRaises(kind):
                    call(client)
                self.assertEqual(len(tries), 1)


class Closed(unittest.TestCase):
    def test_calls_of_a_closed_client_fail(self):
        for address in ADDRESSES:
            client = settee.Client(address)
            client.map([], [])
            client.close()
            client.close()
            calls = (lambda: client.map([], []), lambda: client.list("shop", TABLE["ddoc"], "keys", []))
            for call in (*calls, client.ps, lambda: client.call("finalize"), lambda: client.get_proc("javascript")):
                with self.subTest(address=address), self.assertRaises(settee.ClientClosed) as raised:
                    call()
                self.assertEqual((raised.exception.fault, raised.exception.retry), ("client", False))

    def test_a_prompt_of_a_closed_client_fails(self):
        with settee.Client(UNIX) as client:
            proc = client.get_proc("javascript")
            client.close()
            with self.assertRaises(settee.ClientClosed):
                proc.prompt(["reset"])

    def test_pending_calls_fail_when_the_client_is_closed(self):
        asked, over = threading.Event(), threading.Event()

        def serve(lines, reply):
            next(lines)
            asked.set()
            over.wait(DEADLINE)

        with scripted(serve) as tcp, ThreadPoolExecutor(1) as threads:
            for address in (tcp, tcp.replace("tcp:", "http://")):
                asked.clear()
                client = settee.Client(address)
                waiting = threads.submit(client.map, [], [])
                if address == tcp:
                    assert asked.wait(DEADLINE)
                client.close()
                with self.subTest(address=address), self.assertRaises(settee.ClientClosed):
                    waiting.result(DEADLINE)
            over.set()


class AsyncClosed(unittest.IsolatedAsyncioTestCase):
    async def test_calls_of_a_closed_client_fail(self):
        for address in ADDRESSES:
            client = settee.AsyncClient(address)
            await client.map([], [])
            await client.close()
            with self.subTest(address=address), self.assertRaises(settee.ClientClosed):
                await client.map([], [])

    async def test_pending_calls_fail_when_the_client_is_closed(self):
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def serve(lines, reply):
            for _ in lines:
                loop.call_soon_threadsafe(asked.set)

        with scripted(serve) as address:
            client = settee.AsyncClient(address)
            waiting = asyncio.ensure_future(client.map([], []))
            await asyncio.wait_for(asked.wait(), DEADLINE)
            await client.close()
            with self.assertRaises(settee.ClientClosed):
                await waiting
