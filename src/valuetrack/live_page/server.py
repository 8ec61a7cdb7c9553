"""The server of the live page: fixed routes on 127.0.0.1, read only, for this machine's browsers.

============================== ============================================================
route                          what
============================== ============================================================
``/``, ``/style.css``, ...     the page: the files of ``assets``, and no others
``/api/run``                   how far the run is, its rows and their seeds
``/api/row?row=R[&seed=S]``    curves of a row: band over seeds, and one seed
``/api/map?row=R&seed=S[&from=N]`` maps of a grid's values, from frame N on
``/api/events``                a stream (server-sent events) of the rows' version numbers
============================== ============================================================

Rows and seeds are looked up in the manifest; nothing in an address becomes a path. Requests must
name this server as their host, which keeps out pages that let their own name point here, and come
from this page or from no page at all.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from valuetrack.io.errors import FileError
from valuetrack.live_page.run_view import RunView
from valuetrack.types import Json

HOST = "127.0.0.1"
ASSETS = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("app", "colours", "curves", "figures", "grid", "maps", "panels", "text")
    },
}
"""Route -> file in ``assets``, and its type."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_CONNECTIONS = 128
MOST_STREAMS = 64
REQUEST_SECONDS = 10.0
"""How long a client may take to say what it wants, and to take what it is sent."""
POLL_SECONDS = 1.0
BEAT_SECONDS = 15.0
"""How often streams look for something new, and say that they are there."""


class RefusedError(Exception):
    """A request that gets an error: the status, and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class PageServer(ThreadingHTTPServer):
    """Serves the page of one run.

    Parameters
    ----------
    view
        The run.
    port
        Where; 0 for a free one.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, view: RunView, port: int = 0) -> None:
        self.view = view
        self.assets = {
            route: (resources.files(__package__).joinpath("assets", name).read_bytes(), kind)
            for route, (name, kind) in ASSETS.items()
        }
        self.closing = threading.Event()
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.streams = threading.BoundedSemaphore(MOST_STREAMS)
        self._reading: dict[int, tuple[float, socket.socket]] = {}
        self._changes = threading.Lock()
        super().__init__((HOST, port), PageHandler)

    @property
    def port(self) -> int:
        """The port that it has."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless there are too many."""
        if not self._slots.acquire(blocking=False):
            _turn_away(request)
            self.shutdown_request(request)
            return
        with self._changes:
            self._reading[id(request)] = time.monotonic() + REQUEST_SECONDS, request
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._slots.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.has_read(request)
            self._slots.release()

    def has_read(self, request: Any) -> None:
        """Stop the clock of a client that has said what it wants."""
        with self._changes:
            self._reading.pop(id(request), None)

    def service_actions(self) -> None:
        """Cut off clients that take too long to say what they want, byte by byte."""
        now = time.monotonic()
        with self._changes:
            late = [request for end, request in self._reading.values() if now > end]
        for request in late:
            self.has_read(request)
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away; the server goes on in any case."""

    def server_close(self) -> None:
        """Let streams end, and close."""
        self.closing.set()
        super().server_close()


class PageHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: PageServer
    timeout = REQUEST_SECONDS
    server_version, sys_version = "valuetrack", ""

    def do_GET(self) -> None:
        """Send what was asked for, or a sentence."""
        self.server.has_read(self.connection)
        try:
            self._check_sender()
            target = urlsplit(self.path)
            if target.path == "/api/events":
                self._stream()
            elif target.path in self.server.assets:
                data, kind = self.server.assets[target.path]
                self._send(HTTPStatus.OK, data, kind)
            else:
                self._send_json(self._find(target.path, target.query))
        except RefusedError as error:
            self._refuse(error.status, str(error))
        except FileError as error:
            self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except OSError:  # the client has gone, or is too slow
            self.close_connection = True
        except Exception:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "The page failed here; reload it.")

    def do_HEAD(self) -> None:
        """Send the same without its content."""
        self.do_GET()

    def _check_sender(self) -> None:
        """Refuse who does not mean this server, and pages of others."""
        hosts = {f"{name}:{self.server.port}" for name in (HOST, "localhost")}
        given = self.headers.get_all("Host") or []
        if len(given) != 1 or given[0].strip().lower() not in hosts:
            raise RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, f"This server is {self.server.address} alone."
            )
        origins = {f"http://{host}" for host in hosts}
        if any(origin not in origins for origin in self.headers.get_all("Origin") or []):
            raise RefusedError(HTTPStatus.FORBIDDEN, "Other origins are refused.")
        is_foreign = self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        is_visit = self.headers.get("Sec-Fetch-Mode") == "navigate"
        if is_foreign and not (is_visit and urlsplit(self.path).path == "/"):
            raise RefusedError(HTTPStatus.FORBIDDEN, "Other sites are refused.")

    def _find(self, path: str, query: str) -> Json:
        """Return what an address of the interface stands for."""
        view = self.server.view
        routes: dict[str, Callable[[Question], Json | None]] = {
            "/api/run": lambda asked: view.overview(),
            "/api/row": lambda asked: view.row(asked.text("row"), asked.number("seed")),
            "/api/map": lambda asked: view.map(
                asked.text("row"), asked.needed("seed"), asked.number("from") or 0
            ),
        }
        if path not in routes:
            raise RefusedError(HTTPStatus.NOT_FOUND, "There is no such page.")
        found = routes[path](Question(query))
        if found is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "The run has no such row or seed.")
        return found

    def _stream(self) -> None:
        """Tell of every change, until the client goes."""
        if not self.server.streams.acquire(blocking=False):
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MOST_STREAMS} pages follow this run already; close one.",
            )
        try:
            self._start(HTTPStatus.OK, "text/event-stream", None)
            if self.command != "HEAD":
                self._tell_changes()
        finally:
            self.server.streams.release()

    def _tell_changes(self) -> None:
        told, last = -1, 0.0
        while not self.server.closing.is_set():
            now, version = time.monotonic(), self.server.view.refresh()
            if version != told:
                message = f"data: {json.dumps({'version': version})}\n\n"
            elif now - last >= BEAT_SECONDS:
                message = ": still here\n\n"
            else:
                message = ""
            if message:
                self.wfile.write(message.encode())
                self.wfile.flush()
                told, last = version, now
            self.server.closing.wait(POLL_SECONDS)

    def _send_json(self, content: Json) -> None:
        data = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
        self._send(HTTPStatus.OK, data, "application/json")

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        try:
            self._send(status, json.dumps({"error": sentence}).encode(), "application/json")
        except OSError:
            self.close_connection = True

    def _send(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        self._start(status, kind, len(data))
        if self.command != "HEAD":
            self.wfile.write(data)

    def _start(self, status: HTTPStatus, kind: str, size: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if size is not None:
            self.send_header("Content-Length", str(size))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer requests that cannot be read, and methods that there are not, with a sentence."""
        self.command = getattr(self, "command", "") or "GET"
        self.close_connection = True
        status = HTTPStatus(code)
        self._refuse(status, f"{status.phrase}: the page can only be read, with GET.")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal belongs to the run."""


class Question:
    """What stands behind the ``?`` of an address."""

    def __init__(self, query: str) -> None:
        try:
            self._values = parse_qs(query, max_num_fields=8)
        except ValueError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "The address asks too much.") from error

    def text(self, name: str) -> str:
        """Return a text, empty if it was not given."""
        return self._values.get(name, [""])[0]

    def number(self, name: str) -> int | None:
        """Return a whole number, if it was given."""
        text = self.text(name)
        if not text:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) <= 10):
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"{name} is a whole number.")
        return int(text)

    def needed(self, name: str) -> int:
        """Return a whole number that must be given."""
        found = self.number(name)
        if found is None:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"{name} is missing.")
        return found


def _turn_away(request: socket.socket) -> None:
    """Say that there are too many connections, without waiting for the client."""
    with contextlib.suppress(OSError):
        request.settimeout(0)
        request.send(
            b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n"
            b"X-Content-Type-Options: nosniff\r\nRetry-After: 1\r\n\r\n"
            b"Too many connections; try again.\n"
        )
