"""Shared by the client's tests: the addresses of the service under test, and a service that follows a script."""

import contextlib
import json
import os
import pathlib
import socket
import socketserver
import threading
import urllib.request

#: The service's addresses, with the user and the password for TCP and HTTP.
UNIX, TCP, HTTP = (os.environ[f"SETTEE_{kind}"] for kind in ("UNIX", "TCP", "HTTP"))
ADDRESSES = (UNIX, TCP, HTTP)

#: Addresses for an operator's calls, with the client's options.
MANAGED = ((UNIX, {}), (HTTP, {"user": "root", "password": "secret"}))

TABLE = json.loads(pathlib.Path(os.environ["SETTEE_CALLS"]).read_text(encoding="utf-8"))

#: Maximum time until an expected event, in seconds.
DEADLINE = 20


def with_ddoc(arguments):
    return [TABLE["ddoc"] if argument == "DDOC" else argument for argument in arguments]


def described(error, expected):
    """Returns the values of an error's expected members."""
    return {"class": type(error).__name__, **{name: getattr(error, name) for name in expected if name != "class"}}


def wait_until(happened):
    """Waits until ``happened()`` is true."""
    tick, left = threading.Event(), DEADLINE * 1000
    while not happened():
        left -= 1
        assert left, "timed out"
        tick.wait(0.001)


def order(method, path, body=None):
    """Makes an operator's request that the client has no method for."""
    request = urllib.request.Request(f"http://{HTTP.rpartition('@')[2]}{path}", body, method=method)
    request.add_header("Authorization", "Basic cm9vdDpzZWNyZXQ=")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).close()


@contextlib.contextmanager
def counting(address):
    """A proxy to the service: its address, and a list whose only element is the number of bytes sent through it."""
    before, _, target = address.rpartition("@")
    host, port = target.split(":")
    sent = [0]

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with socket.create_connection((host, int(port))) as service:
                answers = threading.Thread(target=self.copy, args=(service, self.request))
                answers.start()
                self.copy(self.request, service)
                answers.join()

        def copy(self, source, target):
            while data := source.recv(65536):
                sent[0] += len(data) if source is self.request else 0
                target.sendall(data)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield f"{before}@127.0.0.1:{server.server_address[1]}", sent
        finally:
            server.shutdown()


@contextlib.contextmanager
def scripted(serve, line_max=None, **limits):
    """A service on a TCP port: `serve(lines, reply)` is called for each connection; bytes are sent as they are. Without
    `line_max` it is an old one, which does not know the call `limits`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            def reply(message):
                self.wfile.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")

            def lines():
                for request in map(json.loads, self.rfile):
                    if request["call"] != "limits":
                        yield request
                    elif line_max:
                        reply({"id": request["id"], "ok": {"line_max": line_max, **limits}})
                    else:
                        reply({"id": request["id"], "error": {"name": "bad_request"}})

            serve(lines(), reply)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield f"tcp:127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
