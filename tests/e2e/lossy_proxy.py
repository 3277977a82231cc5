# SPDX-License-Identifier: Apache-2.0
"""A proxy before a server that loses, refuses or delays what a test tells it to.

One request per connection, which keeps it small: the answer is passed on until the server closes.
Runs in threads of its own.

    with LossyProxy(server.endpoint) as proxy:
        proxy.rules.append(Rule("PUT", r"/snapshot-\\d+$", "drop answer", times=1))
"""

import contextlib
import dataclasses
import re
import socket
import socketserver
import threading
from typing import Literal

Fault = Literal["drop answer", "drop request", "500", "503", "delay"]

_REFUSALS = {
    "500": b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "503": b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 31\r\n\r\n"
    b"<Error><Code>SlowDown</Code></E",
}


@dataclasses.dataclass
class Rule:
    """Which requests get a fault, and how many of them.

    Attributes:
        method: of the request, "" for any.
        path: pattern searched in path and query.
        fault: what happens to it.
        times: how often it still happens.
        seconds: of a delay.
    """

    method: str
    path: str
    fault: Fault
    times: int = 10**9
    seconds: float = 0.0


class LossyProxy:
    """See the module.

    Attributes:
        rules: the first that matches and has times left is applied; may be changed at any time.
        seen: (method, path) of all requests in the order of their arrival.
        endpoint: URL of the proxy.
    """

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.removeprefix("http://").partition(":")
        self.upstream = (host, int(port))
        self.rules: list[Rule] = []
        self.seen: list[tuple[str, str]] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "LossyProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def rule_for(self, method: str, path: str) -> Rule | None:
        """Note a request; the rule that applies to it is used up once."""
        with self._lock:
            self.seen.append((method, path))
            for rule in self.rules:
                if rule.times and rule.method in ("", method) and re.search(rule.path, path):
                    rule.times -= 1
                    return rule
        return None


class _Server(socketserver.ThreadingTCPServer):
    def __init__(self, address: tuple[str, int], proxy: LossyProxy) -> None:
        super().__init__(address, _Connection)
        self.proxy = proxy


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.request.settimeout(30)
            head = b""
            while line := self.rfile.readline():
                if line == b"\r\n":
                    break
                head += line
            if head:
                length = re.search(rb"(?:^|\r\n)content-length: *(\d+)", head, re.IGNORECASE)
                self._answer(head, self.rfile.read(int(length[1])) if length else b"")

    def _answer(self, head: bytes, body: bytes) -> None:
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        rule = self.server.proxy.rule_for(method, path)
        fault = None if rule is None else rule.fault
        if fault == "drop request":
            return
        if fault in _REFUSALS:
            self.wfile.write(_REFUSALS[fault])
            return
        if rule is not None and fault == "delay":
            self.server.proxy.ended.wait(rule.seconds)
        with socket.create_connection(self.server.proxy.upstream, 30) as upstream:
            upstream.sendall(head + b"Connection: close\r\n\r\n" + body)
            while block := upstream.recv(1 << 16):
                if fault != "drop answer":
                    self.wfile.write(block)
