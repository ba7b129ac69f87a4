"""The server of a page: local only, protected by a token in its address."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Protocol

from popgraph.viewer.page import page

HOST = "127.0.0.1"
SKETCH = "part/sketch"
"""Path of the sketch, which the page shows first."""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content security policy: the page may only contact this server."""


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


@dataclass
class Server:
    """Serves a document on a free port until it is closed."""

    document: Served
    sketch: str | None = None
    """JSON of the sketch shown until the document is ready."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @cached_property
    def _http(self) -> ThreadingHTTPServer:
        made = ThreadingHTTPServer((HOST, 0), self._handler())
        made.daemon_threads = True
        return made

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
        """Stops `run`, and releases the port."""
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, host: str) -> tuple[HTTPStatus, str, str]:
        """Status, content type and text of the response."""
        start = f"/{self.token}/"
        known = secrets.compare_digest(path[: len(start)].encode(), start.encode())
        if host != self._host or not known:
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

            def do_GET(self) -> None:
                status, kind, text = server.answer(self.path, self.headers.get("Host", ""))
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Content-Security-Policy", POLICY)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Suppresses the log."""

        return Handler
