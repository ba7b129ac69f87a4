"""The server of a page: local only, protected by a token in its address."""

from __future__ import annotations

import json
import secrets
import socket
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Protocol

from popgraph.viewer.page import page, script

HOST = "127.0.0.1"
SKETCH = "part/sketch"
"""Path of the sketch, which the page shows first."""
MOST_WAITING = 64
"""Connections that may wait for their request; a new one then ends the oldest."""
SECONDS = 60.0
"""Time that a client may take to send the next byte, or to read its answer."""


@cache
def policy() -> str:
    """
    Content security policy: only the script of the page runs, and it only contacts this server.

    The hash also refuses scripts and handlers that a name in a model might bring into the page.
    """
    known = b64encode(sha256(script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{known}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


class Served(Protocol):
    """A document served in named parts."""

    @property
    def parts(self) -> Iterable[str]: ...

    def part(self, name: str) -> dict[str, Any]: ...


@dataclass
class Awaited:
    """A document still being built; requests for its parts wait."""

    made: Future[Served] = field(default_factory=Future)

    @property
    def parts(self) -> Iterable[str]:
        return self.made.result().parts

    def part(self, name: str) -> dict[str, Any]:
        return self.made.result().part(name)


class Connections(ThreadingHTTPServer):
    """
    Serves each connection in a thread.

    Idle and slow clients cannot exhaust the threads: at most `MOST_WAITING` wait at a time.
    """

    daemon_threads = True
    request_queue_size = MOST_WAITING

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._waiting: dict[Any, None] = {}
        """Sockets without a complete request, oldest first."""
        self._lock = Lock()
        super().__init__((HOST, 0), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._waiting) == MOST_WAITING:
                self._end_oldest()
            self._waiting[request] = None
        super().process_request(request, client_address)

    def received(self, request: Any) -> None:
        """Takes note that a request is complete; its connection may stay until it is answered."""
        with self._lock:
            self._waiting.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        self.received(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            while self._waiting:
                self._end_oldest()

    def _end_oldest(self) -> None:
        oldest = next(iter(self._waiting))
        del self._waiting[oldest]
        with suppress(OSError):  # The client may have gone.
            oldest.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports an exception, except for clients that went away."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@dataclass
class Server:
    """Serves a document on a free port until it is closed."""

    document: Served
    sketch: str | None = None
    """JSON of the sketch shown until the document is ready."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self) -> None:
        self._http = Connections(self._handler())

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://{self._host}/{self.token}/"

    @property
    def _host(self) -> str:
        return f"{HOST}:{self._http.server_port}"

    def run(self) -> None:
        """Serves requests until `close`."""
        self._http.serve_forever()

    @contextmanager
    def running(self) -> Iterator[Thread]:
        """Serves requests in a thread until the block ends."""
        thread = Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            self.close()

    def close(self) -> None:
        """Stops `run`, releases the port, and ends connections that wait."""
        self._http.shutdown()
        self._http.server_close()

    def answer(
        self, path: str, hosts: Sequence[str], origins: Sequence[str]
    ) -> tuple[HTTPStatus, str, str]:
        """
        Status, content type and text of the response.

        `hosts` and `origins` are the headers that name the server and the page that asks it: pages
        of other sites, or of names that resolve to this machine, receive nothing.
        """
        start = f"/{self.token}/"
        known = secrets.compare_digest(path[: len(start)].encode(), start.encode())
        is_own = list(hosts) == [self._host] and {*origins} <= {f"http://{self._host}"}
        if not (is_own and known):
            return HTTPStatus.FORBIDDEN, "text/plain", "the address lacks the token of this viewer"
        name = path.removeprefix(start)
        if not name:
            return HTTPStatus.OK, "text/html", page()
        folder, _, part = name.partition("/")
        if name == SKETCH:
            return HTTPStatus.OK, "application/json", self.sketch or "null"
        if folder == "part" and part in self.document.parts:
            return HTTPStatus.OK, "application/json", json.dumps(self.document.part(part))
        return HTTPStatus.NOT_FOUND, "text/plain", "there is no such page"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            """Serves requests without logging them."""

            timeout = SECONDS
            server_version, sys_version = "PopGraph", ""
            default_request_version = "HTTP/1.0"
            """Malformed requests, too, are answered with a status and headers."""

            def do_GET(self) -> None:
                server._http.received(self.connection)
                hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
                self._send(*server.answer(self.path, hosts, origins))

            def send_error(
                self, code: int, message: str | None = None, explain: str | None = None
            ) -> None:
                """Answers a malformed request, and repeats nothing of it."""
                status = HTTPStatus(code)
                self._send(status, "text/plain", status.phrase)

            def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def end_headers(self) -> None:
                self.send_header("Content-Security-Policy", policy())
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Cross-Origin-Resource-Policy", "same-origin")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("Cache-Control", "no-store")
                super().end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Suppresses the log."""

        return Handler
