"""Every call, over every way to the service, from threads and from asyncio."""

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

import settee
from settee.stream import BATCH_BYTES_MAX, STREAM_DOCS_MAX
from tests.support import ADDRESSES, DEADLINE, HTTP, TABLE, TCP, UNIX, counting, scripted, told, with_ddoc

COUNT = "function(doc) { emit(doc._id, 1) }"


class Calls(unittest.TestCase):
    def test_every_call_returns_its_value(self):
        for address in ADDRESSES:
            with settee.Client(address) as client:
                for method, arguments, options, expected in TABLE["calls"]:
                    with self.subTest(address=address, method=method):
                        value = getattr(client, method)(*with_ddoc(arguments), **options)
                        self.assertEqual(list(value) if method == "list" else value, expected)

    def test_every_error_has_its_class_its_fault_and_whether_to_retry(self):
        for address in ADDRESSES:
            with settee.Client(address) as client:
                for method, arguments, options, expected in TABLE["errors"]:
                    with self.subTest(address=address, method=method):
                        with self.assertRaises(settee.ServiceError) as raised:
                            getattr(client, method)(*with_ddoc(arguments), **options)
                        self.assertEqual(told(raised.exception, expected), expected)

    def test_a_list_has_its_response_and_its_rows_may_be_a_generator_that_calls(self):
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

    def test_a_list_over_http_gives_pieces_before_it_has_all_rows(self):
        read = threading.Event()

        def rows():
            yield {"key": "first"}
            assert read.wait(DEADLINE), "no piece in time"
            yield {"key": "second"}

        with settee.Client(HTTP) as client:
            page = client.list("shop", TABLE["ddoc"], "keys", rows(), head={}, req={"query": {"end": "."}})
            self.assertEqual(next(page), "first")
            read.set()
            self.assertEqual(list(page), ["second", "."])

    def test_a_function_that_fails_after_its_first_piece_is_the_failure_of_the_list(self):
        rows = [{"key": "first"}, {"key": "second"}]
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client:
                with self.assertRaises(settee.ServiceError) as raised:
                    list(client.list("shop", TABLE["ddoc"], "breaks", rows))
                error = raised.exception
                self.assertEqual((error.name, error.reason, error.fault), ("broken", "at the second row", "client"))

    def test_a_failure_of_the_rows_is_the_failure_of_the_list(self):
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

    def test_http_refuses_what_needs_a_socket(self):
        with settee.Client(HTTP) as client:
            for call in (lambda: client.call("status"), lambda: client.get_proc("javascript")):
                with self.assertRaises(settee.BadRequest):
                    call()

    def test_a_hundred_threads_share_a_client(self):
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client, ThreadPoolExecutor(100) as threads:
                rows = threads.map(lambda id: client.map([COUNT], [{"_id": str(id)}], db="shop"), range(100))
                self.assertEqual(list(rows), [[[[[str(id), 1]]]] for id in range(100)])


@unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
class Forked(unittest.TestCase):
    """A client in a child of a fork."""

    def in_child(self, use):
        """What ``use`` returns in a child."""
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

    def test_calls_go_on_in_the_child_and_in_the_parent(self):
        for address in ADDRESSES:
            with settee.Client(address) as client, self.subTest(address):
                call = functools.partial(client.map, [COUNT], [{"_id": "a"}])
                rows = call()
                self.assertEqual([self.in_child(call), call(), self.in_child(call)], [rows, rows, rows])
                self.assertTrue(self.in_child(lambda: client.close() or True))
                self.assertEqual(call(), rows)

    def test_loans_stay_with_the_parent(self):
        def told(act):
            with self.assertRaises(settee.BadRequest) as caught:
                act()
            return caught.exception.reason

        with settee.Client(UNIX) as client, client.lease("javascript") as proc:
            reason = self.in_child(lambda: told(proc.reset))
            self.assertIn(f"belongs to process {os.getpid()}, which forked", reason)
            self.assertEqual(proc.prompt(["reset"]), True)


class AsyncCalls(unittest.IsolatedAsyncioTestCase):
    async def test_every_call_returns_its_value(self):
        for address in ADDRESSES:
            async with settee.AsyncClient(address) as client:
                for method, arguments, options, expected in TABLE["calls"]:
                    with self.subTest(address=address, method=method):
                        value = await getattr(client, method)(*with_ddoc(arguments), **options)
                        self.assertEqual([piece async for piece in value] if method == "list" else value, expected)

    async def test_a_hundred_calls_at_the_same_time_have_their_own_results(self):
        for address in ADDRESSES:
            async with settee.AsyncClient(address) as client:
                calls = (client.map([COUNT], [{"_id": str(id)}], db="shop") for id in range(100))
                self.assertEqual(await asyncio.gather(*calls), [[[[[str(id), 1]]]] for id in range(100)])

    async def test_ten_thousand_calls_may_be_made_at_the_same_time(self):
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


class Cancelled(unittest.IsolatedAsyncioTestCase):
    ENDLESS = "function(doc) { for (;;); }"

    async def used(self, client, count):
        """Waits until so many processes are in use."""
        for _ in range(DEADLINE * 100):
            procs = (await client.ps("javascript"))["procs"]
            if sum(row["state"] in ("lent", "running") for row in procs) == count:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not {count} in time")

    async def test_a_call_that_is_cancelled_frees_its_process(self):
        async with settee.AsyncClient(UNIX) as watching:
            for address in ADDRESSES:
                async with settee.AsyncClient(address) as client:
                    with self.subTest(address=address):
                        calling = asyncio.ensure_future(client.map([self.ENDLESS], [{"_id": "a"}], db="shop"))
                        await self.used(watching, 1)
                        calling.cancel()
                        with self.assertRaises(asyncio.CancelledError):
                            await calling
                        await self.used(watching, 0)
                        self.assertEqual(await client.map([COUNT], [{"_id": "a"}], db="shop"), [[[["a", 1]]]])

    async def test_a_call_that_takes_too_long_frees_its_process_and_no_other(self):
        async with settee.AsyncClient(UNIX, call_seconds=1) as client, settee.AsyncClient(UNIX) as watching:
            async with client.lease("javascript", db="shop") as proc:
                with self.assertRaises(settee.CallTimeout):
                    await client.map([self.ENDLESS], [{"_id": "a"}], db="shop")
                await self.used(watching, 1)
                self.assertTrue(await proc.prompt(["reset"]))
            await self.used(watching, 0)


class Flow:
    """Documents that come one by one, and how many were taken whose rows were not given."""

    def __init__(self, count):
        self.count, self.in_flight, self.most = count, 0, 0

    def docs(self):
        for number in range(self.count):
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            yield {"_id": str(number)}

    async def async_docs(self):
        for doc in self.docs():
            yield doc

    def given(self, rows):
        number = self.count - self.left()
        assert rows == [[[str(number), 1]]], (number, rows)
        self.rows_given = number + 1
        self.in_flight -= 1

    def left(self):
        return self.count - getattr(self, "rows_given", 0)


class Streams(unittest.TestCase):
    def test_a_hundred_thousand_documents_are_mapped_in_order_with_few_in_flight(self):
        flow = Flow(100_000)
        with settee.Client(UNIX) as client:
            for rows in client.map([COUNT], flow.docs(), db="shop"):
                flow.given(rows)
        self.assertEqual(flow.left(), 0)
        self.assertLessEqual(flow.most, STREAM_DOCS_MAX)

    def test_any_iterable_is_mapped(self):
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client:
                docs = {number: {"_id": str(number)} for number in range(250)}
                rows = list(client.map([COUNT], docs.values(), db="shop"))
                self.assertEqual(rows, [[[[str(number), 1]]] for number in range(250)])
                self.assertEqual(list(client.map([COUNT], iter([]))), [])

    def test_documents_may_be_made_with_calls_and_rows_come_while_there_are_more(self):
        with settee.Client(UNIX) as client:
            flow = Flow(10**9)
            docs = ({"_id": doc["_id"], "n": client.reduce(["_count"], [[["a", "a"], 1]])} for doc in flow.docs())
            rows = client.map([COUNT], docs, db="shop")
            self.assertEqual(next(rows), [[["0", 1]]])
            rows.close()
            self.assertLessEqual(flow.most, STREAM_DOCS_MAX)

    def test_a_call_of_large_documents_has_few_of_them(self):
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

    def test_rows_before_a_failure_come_first(self):
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
                    flow.given(rows)
                self.assertEqual(flow.left(), 0)
                self.assertLessEqual(flow.most, STREAM_DOCS_MAX)

    async def test_rows_of_a_document_come_before_the_next_document(self):
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

    async def test_rows_before_a_failure_come_first(self):
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

    async def test_an_unfinished_stream_takes_no_more(self):
        async with settee.AsyncClient(UNIX) as client:
            flow = Flow(10**9)
            rows = client.map([COUNT], flow.async_docs(), db="shop")
            self.assertEqual(await rows.__anext__(), [[["0", 1]]])
            await rows.aclose()
            self.assertLessEqual(flow.most, STREAM_DOCS_MAX)


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

    def test_a_report_has_the_value_and_what_happened_on_the_way(self):
        def serve(lines, reply):
            for request in lines:
                told = {"request_id": request["request_id"]} if request["report"] else {}
                reply({"id": request["id"], "ok": [[[]]], **self.MEMBERS, **told})

        with scripted(serve) as address, settee.Client(address) as client:
            report = client.map([COUNT], [{"_id": "a"}], report=True, request_id="r-2")
            self.assertEqual(vars(report), {**self.MEMBERS, "value": [[[]]], "request_id": "r-2"})

    def test_the_error_of_a_call_has_the_report(self):
        def serve(lines, reply):
            for request in lines:
                error = {"name": "compilation_error", "reason": "no", "shifted": True}
                reply({"id": request["id"], "error": error, **self.MEMBERS})

        with scripted(serve) as address, settee.Client(address) as client:
            with self.assertRaises(settee.CompilationError) as raised:
                client.compile("function(", report=True)
            self.assertEqual(vars(raised.exception.report), {**self.MEMBERS, "value": None})
            self.assertTrue(raised.exception.shifted)

    def test_the_daemon_reports(self):
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address) as client:
                report = client.map(["function(doc) { log('hello'); emit(1) }"], [{"_id": "a"}], report=True)
                self.assertEqual((report.value, report.logs[0]["message"]), ([[[[1, None]]]], "hello"))


class Mistakes(unittest.TestCase):
    def test_another_server_is_distinguished_from_a_missing_service(self):
        def serve(lines, reply):
            next(lines)
            reply("HTTP/1.1 400 Bad Request")

        with scripted(serve) as address, settee.Client(address) as client:
            with self.assertRaises(settee.ProtocolError) as raised:
                client.map([], [])
            self.assertFalse(raised.exception.retry)

    def test_a_reply_without_an_id_is_the_error_of_all_pending_calls(self):
        def serve(lines, reply):
            next(lines)
            reply({"id": None, "error": {"name": "line_too_long", "reason": "too long", "fault": "client"}})

        with scripted(serve) as address, settee.Client(address) as client:
            with self.assertRaises(settee.ServiceError) as raised:
                client.map([], [])
            self.assertEqual(raised.exception.name, "line_too_long")

    def test_a_call_above_the_bound_of_the_service_fails_before_it_is_sent_and_no_other_is_affected(self):
        huge = {"_id": "a", "text": "x" * (5 << 20)}
        for address in ADDRESSES:
            with self.subTest(address=address), settee.Client(address, retry_for=60) as client:
                proc = None if address == HTTP else client.get_proc("javascript")
                key = "body_max" if address == HTTP else "line_max"
                told = rf"^bad_request: the call has 5\d{{6}} bytes, more than the 4194304 bytes .*\[server\] {key}.*: send less"
                with ThreadPoolExecutor(1) as threads:
                    other = threads.submit(client.map, [COUNT], [{"_id": "b"}], db="shop")
                    with self.assertRaisesRegex(settee.BadRequest, told):
                        client.map([COUNT], [huge])
                    self.assertEqual(other.result(), [[[["b", 1]]]])
                if proc:
                    with self.assertRaisesRegex(settee.BadRequest, told):
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
                # Six bytes a letter.
                self.assertTrue(6 << 18 < sent[0] < 7 << 18, sent)
                client.show("till", ddoc, "name", req={"query": {"end": "!"}})
                self.assertTrue(12 << 18 < sent[0] < 13 << 18, sent)

    def test_a_service_that_does_not_know_a_digest_gets_the_text_and_an_old_one_no_digest(self):
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

    def test_lines_keep_their_order_while_the_bound_is_requested_and_an_old_service_has_the_default(self):
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

    def test_a_list_of_a_silent_service_is_waited_for_until_the_clients_timeout(self):
        over = threading.Event()
        with scripted(lambda lines, reply: over.wait(DEADLINE)) as address:
            address = address.replace("tcp:", "http://")
            with settee.Client(address, call_seconds=0.05) as client, self.assertRaises(settee.Unavailable):
                client.list("shop", TABLE["ddoc"], "keys", [])
            over.set()

    def test_a_silent_service_is_waited_for_until_the_clients_timeout(self):
        with scripted(lambda lines, reply: list(lines)) as address:
            with settee.Client(address, call_seconds=0.05) as client, self.assertRaises(settee.CallTimeout) as raised:
                client.map([], [])
            self.assertEqual((raised.exception.phase, raised.exception.retry), ("reply", True))

    def test_an_unserializable_argument_is_the_callers_mistake_at_once_and_the_member_is_named(self):
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

    def test_a_timeout_is_more_than_none(self):
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

    def test_an_unknown_option_is_a_mistake_of_the_caller(self):
        with settee.Client(UNIX) as client, self.assertRaises(TypeError):
            client.map([], [], tiemout=1)

    def test_an_invalid_address_is_refused_when_the_client_is_made(self):
        wrong = {
            "localhost:5994": "no scheme",
            "localhost": "no scheme",
            "ftp://localhost/": "no scheme",
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

    def test_a_socket_is_found_by_the_name_of_its_file(self):
        folder, name = os.path.split(UNIX.partition(":")[2])
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        with settee.Client(name) as client:
            self.assertTrue(client.compile("function() {}"))

    def test_an_address_where_nothing_listens_is_named(self):
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
        """A service that refuses a call so many times."""
        tries = []

        def serve(lines, reply):
            for request in lines:
                tries.append(request["call"])
                is_over = len(tries) > times
                reply({"id": request["id"], **({"ok": []} if is_over else {"error": error})})

        return tries, scripted(serve)

    def test_an_error_worth_a_retry_is_retried_by_a_client_that_has_time(self):
        for error in (self.BUSY, {**self.BUSY, "retry_after_ms": 1}, {"name": "shutting_down", "reason": "it ends"},
                      {"name": "draining", "reason": "it rests"}):
            tries, service = self.refusing(2, error)
            with self.subTest(error=error), service as address, settee.Client(address, retry_for=DEADLINE) as client:
                self.assertEqual(client.map([], []), [])
                self.assertEqual(len(tries), 3)

    @contextlib.contextmanager
    def refusing_over_http(self, times, error):
        """The same over HTTP. It closes each connection after an answer, and does not say so."""
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

    def test_a_query_to_a_busy_service_is_retried_and_an_order_is_not(self):
        busy = {"error": "too_many_requests", "reason": "no room"}
        with self.refusing_over_http(2, busy) as (tries, address), settee.Client(address, retry_for=DEADLINE) as client:
            self.assertEqual(client.ps(), {"ok": []})
            self.assertEqual(len(tries), 3)
        with self.refusing_over_http(2, busy) as (tries, address), settee.Client(address, retry_for=DEADLINE) as client:
            with self.assertRaises(settee.Busy):
                client.kill("javascript/1")
            self.assertEqual(tries, ["/_procs/javascript/1?"])

    def test_an_order_takes_no_connection_that_the_service_may_have_closed(self):
        with self.refusing_over_http(0, {}) as (tries, address), settee.Client(address) as client:
            self.assertEqual(client.map([], []), [])
            self.assertEqual(client.kill("javascript/1", now=True), {"ok": []})
            self.assertEqual(tries[1:], ["/_procs/javascript/1?now=true"])

    def test_without_time_for_retries_an_error_is_reported_at_once(self):
        for options in ({}, {"retry_for": 0}):
            tries, service = self.refusing(2, self.BUSY)
            with self.subTest(options=options), service as address, settee.Client(address, **options) as client:
                with self.assertRaises(settee.Busy):
                    client.map([], [])
                self.assertEqual(len(tries), 1)

    def test_a_call_fails_with_the_last_error_when_the_time_is_up(self):
        for error in (self.BUSY, {**self.BUSY, "retry_after_ms": 1000 * DEADLINE}):
            tries, service = self.refusing(10**9, error)
            with self.subTest(error=error), service as address, settee.Client(address, retry_for=0.3) as client:
                with self.assertRaises(settee.Busy):
                    client.map([], [])
                self.assertEqual(len(tries) > 1, error == self.BUSY)

    def test_neither_mistakes_nor_calls_that_must_not_be_repeated_are_retried(self):
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

    def test_a_lease_of_a_closed_client_is_over(self):
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
