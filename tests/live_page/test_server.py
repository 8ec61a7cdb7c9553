"""The live page's server: what it sends, to whom, and what it survives."""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from tests.live_page.folders import (
    ROW,
    UNIT,
    always_fresh,
    ask,
    ask_json,
    make_grown,
    make_run,
    record,
    served,
)
from valuetrack.live_page import server as pages

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    return make_grown(path)


@pytest.fixture(scope="module")
def server(grown):
    with served(grown.path) as running:
        yield running


def raw(server, data, seconds=20.0):
    """Send bytes; return all that comes back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize("route", list(pages.ASSETS))
def test_the_page_comes_whole_and_guarded(server, route):
    status, headers, content = ask(server, route)
    assert status == 200
    assert len(content) == int(headers["Content-Length"]) > 100
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    text = content.decode()
    assert "innerHTML" not in text
    assert "insertAdjacentHTML" not in text
    foreign = text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "http://" not in foreign
    assert "https://" not in foreign


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_the_interface_tells_of_the_run(server):
    status, seen = ask_json(server, "/api/run")
    assert status == 200
    assert seen["rows"][0]["id"] == ROW
    status, row = ask_json(server, f"/api/row?row={ROW}&seed=1")
    assert row["series"][0]["one"] == [101, 201, 301]
    status, found = ask_json(server, f"/api/map?row={ROW}&seed=0&from=2")
    assert [frame["steps"] for frame in found["frames"]] == [300]


@pytest.mark.parametrize(
    "path",
    [
        "/manifest.json", "/../manifest.json", "/..%2f..%2fetc%2fpasswd", "//etc/passwd",
        "/assets/../server.py", "/server.py", "/style.css/..", "/units/lktd", "/api/",
        "/api/row", "/api/row?row=../../etc", f"/api/row?row={ROW}%2F..%2F{ROW}",
        f"/api/row?row={ROW}%00", f"/api/row?row={ROW}&seed=99", "/api/map?row=..&seed=0",
        f"/api/map?row={ROW}&seed=4",
    ],
)  # fmt: skip
def test_there_is_nothing_but_what_the_manifest_names(server, path):
    status, _, content = ask(server, path)
    assert status == 404
    assert b"root:" not in content
    assert json.loads(content)["error"].startswith(("There is no", "The run has no"))


@pytest.mark.parametrize(
    "query",
    [f"row={ROW}&seed=-1", f"row={ROW}&seed=1e3", f"row={ROW}&seed=٣", f"row={ROW}",
     f"row={ROW}&seed=0&from=x", f"row={ROW}&seed=99999999999", "&".join("a=1" for _ in range(9))],
)  # fmt: skip
def test_wrong_questions_are_refused(server, query):
    status, _, content = ask(server, f"/api/map?{query.replace('٣', '%D9%A3')}")
    assert status == 400
    assert json.loads(content)["error"].endswith(".")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(server, method):
    status, headers, content = ask(server, "/api/run", method)
    assert status == 501
    assert "can only be read" in json.loads(content)["error"]
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost", "",
             "127.0.0.1.evil.example:{port}", "127.0.0.1:{port}@evil.example", "[::1]:{port}"],
)  # fmt: skip
def test_foreign_hosts_are_refused(server, host):
    for path in ("/", "/api/run", "/api/events"):
        status, _, _ = ask(server, path, Host=host.format(port=server.port))
        assert status == 421


def test_two_hosts_and_none_are_refused(server):
    own = b"Host: 127.0.0.1:%d\r\n" % server.port
    for hosts in (b"", own + b"Host: evil.example\r\n"):
        answer = raw(server, b"GET /api/run HTTP/1.0\r\n" + hosts + b"\r\n")
        assert answer.startswith(b"HTTP/1.0 421 ")


def test_both_names_of_this_machine_are_served(server):
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert ask(server, "/api/run", Host=f"{name}:{server.port}")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"},
     {"Origin": "https://127.0.0.1:{port}"}, {"Sec_Fetch_Site": "cross-site"},
     {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"},
     {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}],
)  # fmt: skip
def test_foreign_origins_are_refused(server, headers):
    given = {name: value.format(port=server.port) for name, value in headers.items()}
    status, _, content = ask(server, "/api/run", **given)
    assert status == 403
    assert b"refused" in content


def test_a_link_elsewhere_may_lead_to_the_page(server):
    visit = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert ask(server, "/", **visit)[0] == 200
    own = {"Origin": f"http://127.0.0.1:{server.port}", "Sec_Fetch_Site": "same-origin"}
    assert ask(server, "/api/run", **own)[0] == 200


@pytest.mark.parametrize(
    "data",
    [b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
     b"GET / HTTP/1.0\r\n" + b"X: y\r\n" * 500 + b"\r\n", b"GET /" + b"a" * 70_000 + b"\r\n\r\n",
     b"GET / HTTP/1.0\r\nHost\r\n\r\n", b"\0" * 70_000],
)  # fmt: skip
def test_the_server_survives_what_is_no_request(server, data):
    with suppress(TimeoutError, ConnectionError):  # it waits for more, or has hung up
        raw(server, data, seconds=3)
    assert ask(server, "/api/run")[0] == 200


def test_script_in_names_is_only_text(tmp_path):
    folder = make_run(tmp_path / "run", label=SCRIPT)
    folder.append_progress(ROW, UNIT, record(100, **{SCRIPT: [1.0, 2.0]}))
    with served(folder.path) as server:
        status, headers, content = ask(server, "/api/run")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert json.loads(content)["rows"][0]["label"] == SCRIPT
        _, headers, content = ask(server, f"/api/row?row={ROW}")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert SCRIPT in [one["name"] for one in json.loads(content)["series"]]


def events(connection):
    """Yield the versions that a stream tells."""
    file = connection.makefile("rb")
    for line in file:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])["version"]


def stream(server, held):
    connection = held.enter_context(
        socket.create_connection(("127.0.0.1", server.port), timeout=20)
    )
    connection.sendall(b"GET /api/events HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.port)
    return connection


def test_streams_tell_when_a_file_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "POLL_SECONDS", 0.05)
    folder = make_grown(tmp_path / "run")
    with always_fresh(), served(folder.path) as server, ExitStack() as held:
        told = events(stream(server, held))
        first = next(told)
        for steps in (400, 500):
            folder.append_progress(ROW, UNIT, record(steps))
            later = next(told)
            assert later > first
            first = later
            _, row = ask_json(server, f"/api/row?row={ROW}")
            assert row["series"][0]["steps"][-1] == steps


def test_too_many_streams_are_turned_away(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "POLL_SECONDS", 0.05)
    with served(make_grown(tmp_path / "run").path) as server, ExitStack() as held:
        streams = [stream(server, held) for _ in range(pages.MOST_STREAMS)]
        for one in streams:
            assert next(events(one)) >= 0
        status, _, content = ask(server, "/api/events")
        assert status == 503
        assert "close one" in json.loads(content)["error"]
        assert ask(server, "/api/run")[0] == 200
        streams[0].shutdown(socket.SHUT_RDWR)
        streams[0].close()


@pytest.fixture
def _many_files():
    """Allow this process as many open files as a thousand connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_000:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
def test_a_thousand_connections_do_not_take_it_down(tmp_path, monkeypatch):
    # On a busy machine a thousand take longer than the server waits for one.
    monkeypatch.setattr(pages, "REQUEST_SECONDS", 120.0)
    monkeypatch.setattr(pages.PageHandler, "timeout", 120.0)
    with served(make_grown(tmp_path / "run").path) as server, ExitStack() as held:
        for _ in range(1_000):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            held.enter_context(connection)
            with suppress(OSError):  # it may have been turned away by now
                connection.sendall(b"GET / HT")  # and no more
        assert refused(connection)
        assert threading.active_count() < pages.MOST_CONNECTIONS + 20
        held.close()
        end = time.monotonic() + 20
        while ask_quietly(server) != 200:
            assert time.monotonic() < end


def refused(connection):
    """Return whether a connection was turned away, as far as the system lets one see the answer."""
    try:
        return connection.recv(100).startswith(b"HTTP/1.0 503 ")
    except ConnectionResetError:
        return True


def ask_quietly(server):
    try:
        return ask(server, "/api/run")[0]
    except OSError:
        return 0


def test_slow_clients_are_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "REQUEST_SECONDS", 0.5)
    with (
        served(make_grown(tmp_path / "run").path) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as slow,
    ):
        began = time.monotonic()
        with suppress(OSError):  # when it is cut off
            for byte in b"GET / HTTP/1.0\r\n" + b"X: y\r\n" * 200:  # a minute's work
                slow.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - began < 10
        assert ask(server, "/api/run")[0] == 200
