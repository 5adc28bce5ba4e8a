"""Processes that a client holds, and that return however the loan ends."""

import asyncio
import signal
import threading
import unittest

import settee
from tests.support import DEADLINE, HTTP, MANAGED, TABLE, TCP, UNIX, order, scripted, wait_until

SOCKETS = (UNIX, TCP)
ADD = ["add_fun", "function(doc) { emit(doc.n, 1) }"]


class Leases(unittest.TestCase):
    def test_a_lease_prompts_one_process_and_returns_it(self):
        for address in SOCKETS:
            with self.subTest(address=address), settee.Client(address) as client:
                with client.lease("javascript", db="shop") as proc:
                    self.assertEqual((proc.pool, proc.lang, proc.down), ("javascript", "javascript", None))
                    self.assertTrue(proc.prompt(ADD))
                    self.assertTrue(proc.set_timeout(5))
                    self.assertEqual(proc.prompt(["map_doc", {"_id": "a", "n": 7}], timeout=5), [[[7, 1]]])
                with self.assertRaises(settee.ServiceError) as raised:
                    proc.prompt(["reset"])
                self.assertEqual(raised.exception.name, "not_holder")

    def test_a_lease_ends_when_its_block_throws(self):
        with settee.Client(UNIX) as client:
            with self.assertRaises(LookupError):
                with client.lease("javascript") as proc:
                    raise LookupError
            self.assertFalse(proc.ret_proc(), "already returned")

    def test_a_process_returned_as_failed_is_not_lent_again(self):
        with settee.Client(UNIX) as client:
            proc = client.get_proc("javascript", db="shop")
            self.assertTrue(proc.ret_proc("fail"))
            with client.lease("javascript", db="shop") as other:
                self.assertNotEqual(other.os_pid, proc.os_pid)

    def test_a_process_stays_usable_after_a_compilation_error(self):
        with settee.Client(UNIX) as client, client.lease("javascript", db="shop") as proc:
            with self.assertRaises(settee.CompilationError) as raised:
                proc.prompt(["add_fun", "function("])
            self.assertEqual(raised.exception.fault, "client")
            self.assertTrue(proc.prompt(ADD))

    def test_a_process_is_returned_as_failed_after_an_interrupt_in_a_prompt(self):
        interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, interrupts)
        main, returned = threading.main_thread().ident, []

        def serve(lines, reply):
            for request in lines:
                if request.get("data") == ["slow"]:
                    signal.pthread_kill(main, signal.SIGINT)
                    continue
                if request["call"] == "ret_proc":
                    returned.append(request["status"])
                reply({"id": request["id"], "ok": {"proc": "1.2.3"}})

        with scripted(serve) as address, settee.Client(address) as client:
            for _ in range(20):
                with self.assertRaises(KeyboardInterrupt), client.lease("javascript") as proc:
                    proc.prompt(["slow"])
        self.assertEqual(returned, ["fail"] * 20)

    def test_the_client_is_notified_when_its_process_is_revoked(self):
        with settee.Client(UNIX) as client:
            order("PUT", "/_pools/python-tests", b'{"language":"javascript"}')
            proc = client.get_proc(pool="python-tests")
            order("DELETE", "/_pools/python-tests?mode=immediate")
            wait_until(lambda: proc.down)
            self.assertEqual(proc.down["name"], "pool_removed")
            self.assertFalse(proc.ret_proc())

    def test_a_process_is_shown_and_killed(self):
        for address, options in MANAGED:
            with self.subTest(address=address), settee.Client(address, **options) as client:
                self.assert_kills(client)

    def assert_kills(self, client):
        with settee.Client(UNIX) as holder, holder.lease("javascript", db="shop") as proc:
            [row] = [row for row in client.ps("javascript")["procs"] if row["os_pid"] == proc.os_pid]
            self.assertEqual((row["pool"], row["state"]), ("javascript", "lent"))
            self.assertIn(row["name"], [row["name"] for row in client.ps()["procs"]])
            killed = client.kill(row["name"], now=True)
            self.assertEqual((killed["how"], killed["proc"]["name"]), ("killed", row["name"]))
            wait_until(lambda: proc.down)
            self.assertEqual(proc.down["name"], "killed")
            for call in (lambda: client.kill("javascript/0"), lambda: client.ps("nope")):
                with self.assertRaises(settee.NotFound):
                    call()
            for name in ("javascript", "17", "../javascript/17", "javascript/x"):
                with self.assertRaises(settee.BadRequest):
                    client.kill(name)

    def test_the_health_of_the_service_is_reported(self):
        for address, options in MANAGED:
            with self.subTest(address=address), settee.Client(address, **options) as client:
                health = client.health()
                self.assertIn(health["status"], ("ok", "warning", "critical"))
                self.assertIsInstance(health["problems"], list)
                fleet = client.health(fleet=True)
                self.assertIn(fleet["status"], ("ok", "warning", "critical"))
                self.assertEqual([one["daemon"] for one in fleet["daemons"]], [health["daemon"]])

    def test_every_client_has_the_methods_of_the_shared_table_and_can_list_what_it_manages(self):
        for kind in (settee.Client, settee.AsyncClient):
            self.assertEqual([name for name in dir(kind) if name[0] != "_"], TABLE["methods"])
        for kind in (settee.Proc, settee.AsyncProc):
            self.assertEqual([name for name in dir(kind) if name[0] != "_"], TABLE["proc_methods"])
        for address, options in MANAGED:
            with settee.Client(address, **options) as client:
                for method, arguments, member in TABLE["managed"]:
                    with self.subTest(address=address, method=method):
                        self.assertIsInstance(getattr(client, method)(**arguments)[member], list)
                self.assertEqual([pool["name"] for pool in client.pools()["pools"]][:1], ["javascript"])
                with self.assertRaisesRegex(settee.ServiceError, "query_parse_error: Unknown states nope"):
                    client.jobs(states="nope")

    def test_a_client_that_may_not_manage_the_service_gets_an_error(self):
        for address, options, kind, reason in (
            (TCP, {}, settee.BadRequest, "use an http:// or https:// address"),
            (HTTP, {}, settee.Forbidden, "ann"),
            (UNIX, {"user": "ann", "password": "secret"}, settee.Forbidden, "ann"),
            (UNIX, {"user": "ann", "password": "wrong"}, settee.Unauthorized, ""),
        ):
            with settee.Client(address, **options) as client:
                for call in (client.ps, client.health, lambda: client.kill("javascript/0")):
                    with self.subTest(address=address, options=options), self.assertRaises(kind) as raised:
                        call()
                    self.assertIn(reason, raised.exception.reason)
                    self.assertEqual((raised.exception.fault, raised.exception.retry), ("client", False))


class AsyncLeases(unittest.IsolatedAsyncioTestCase):
    async def test_a_lease_ends_when_its_block_returns_or_throws(self):
        async with settee.AsyncClient(UNIX) as client:
            async with client.lease("javascript") as proc:
                self.assertTrue(await proc.prompt(ADD))
            self.assertFalse(await proc.ret_proc())
            with self.assertRaises(LookupError):
                async with client.lease("javascript") as proc:
                    raise LookupError
            self.assertFalse(await proc.ret_proc())

    async def test_a_process_is_shown_and_killed(self):
        async with settee.AsyncClient(UNIX) as client, client.lease("javascript", db="shop") as proc:
            [row] = [row for row in (await client.ps())["procs"] if row["os_pid"] == proc.os_pid]
            self.assertEqual((await client.kill(row["name"], now=True))["how"], "killed")
            self.assertIn("problems", await client.health())

    async def test_a_busy_process_is_not_lent_again_after_its_caller_gave_up(self):
        # Shorter than the service's own timeout.
        async with settee.AsyncClient(UNIX, call_seconds=2) as client:
            async with client.lease("javascript", db="shop") as proc:
                await proc.prompt(["add_fun", "function(doc) { for (;;); }"])
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(proc.prompt(["map_doc", {"_id": "a"}]), 0.05)
            async with client.lease("javascript", db="shop") as other:
                self.assertNotEqual(other.os_pid, proc.os_pid)

    async def test_prompts_keep_their_order_when_the_bound_of_the_service_arrives(self):
        arrived = []

        def serve(lines, reply):
            for request in lines:
                if request["call"] == "prompt":
                    arrived.append(request["data"][0])
                reply({"id": request["id"], "ok": {"proc": "1.2.3"}})

        with scripted(serve, 1 << 20) as address:
            async with settee.AsyncClient(address, call_seconds=DEADLINE) as client:
                proc = await client.get_proc("javascript")
                prompts = [asyncio.ensure_future(proc.prompt([0, "x" * 2000]))]
                while not prompts[0].done():
                    prompts.append(asyncio.ensure_future(proc.prompt([len(prompts)])))
                    # Another turn of the event loop.
                    await asyncio.sleep(0)
                await asyncio.gather(*prompts)
        self.assertEqual(arrived, sorted(arrived))

    async def test_a_process_lent_after_its_caller_gave_up_is_returned(self):
        requested, given_up, returned = (asyncio.Event() for _ in range(3))
        loop = asyncio.get_running_loop()

        def serve(lines, reply):
            request = next(lines)
            loop.call_soon_threadsafe(requested.set)
            asyncio.run_coroutine_threadsafe(given_up.wait(), loop).result()
            reply({"id": request["id"], "ok": {"proc": "1.2.3", "config": {}}})
            if {"call": "ret_proc", "proc": "1.2.3"}.items() <= next(lines).items():
                loop.call_soon_threadsafe(returned.set)

        with scripted(serve) as address:
            async with settee.AsyncClient(address) as client:
                requesting = asyncio.ensure_future(client.get_proc("javascript"))
                await requested.wait()
                requesting.cancel()
                await asyncio.wait([requesting])
                given_up.set()
                await asyncio.wait_for(returned.wait(), DEADLINE)
