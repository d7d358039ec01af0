"""Clients that mean harm to the server itself: they fill its memory, its disk and its connections, or come by way of a
browser. Each attack is made on a real server, which refuses it with a sentence, keeps its size and answers the next."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_web import small_onnx
from web_server import Served, serving

import forerun
from forerun.web.settings import ServerSettings

QUESTION = {"model": "cnn:depth=2,filters=8", "device": "l4"}
GROWTH_MB = 50
CLIENT_S = 3
READ = ("/page/plotly.js", "/v1/devices", "/")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, _own_folders: None) -> Iterator[Served]:
    """A server with the page, as `forerun serve` starts it but for its rate, which attacks are not to hide behind."""
    folder = tmp_path_factory.mktemp("attacked")
    with serving(folder, "--rate", "0", "--client-timeout", str(CLIENT_S), forked=True) as result:
        for path in READ:
            assert result.ask(path).status == 200
        assert result.ask("/gradio_api/queue/join", {**page_question(result), "session_hash": "first"}).status == 200
        assert b"process_completed" in raw(result, head("GET", "/gradio_api/queue/data?session_hash=first"))
        yield result


def page_question(served: Served) -> dict[str, Any]:
    """What the page sends when its first question is asked."""
    config = served.ask("/config").body
    first = next(d for d in config["dependencies"] if d["backend_fn"] and len(d["inputs"]) > 10)
    by_id = {c["id"]: c["props"].get("value") for c in config["components"]}
    return {"data": [by_id[i] for i in first["inputs"]], "fn_index": first["id"], "trigger_id": None}


@contextlib.contextmanager
def memory_kept(served: Served) -> Iterator[None]:
    """The server still answers after the block, and half a minute later its memory is within 50 MB of before."""
    process = psutil.Process(served.pid)
    assert served.ask("/v1/predict", QUESTION).status == 200
    before = settled(process)
    yield
    assert served.ask("/v1/predict", QUESTION).status == 200
    for _ in range(60):
        grown = (process.memory_info().rss - before) / 2**20
        if grown < GROWTH_MB:
            return
        time.sleep(0.5)
    raise AssertionError(f"the server has {grown:.0f} MB more than before")


def settled(process: psutil.Process) -> int:
    """The memory of a server that has loaded what its first answers need."""
    seen = [0]
    for _ in range(60):
        seen.append(process.memory_info().rss)
        if len(seen) > 5 and max(seen[-5:]) - min(seen[-5:]) < 2**20:
            break
        time.sleep(0.5)
    return seen[-1]


def place_of(served: Served) -> tuple[str, int]:
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def raw(served: Served, sent: bytes) -> bytes:
    """What the server answers to bytes, until it closes the connection."""
    with socket.create_connection(place_of(served), timeout=60) as client:
        client.sendall(sent)
        return _read_all(client)


def _read_all(client: socket.socket) -> bytes:
    result = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            result += part
    return result


def head(method: str, path: str, **headers: str) -> bytes:
    lines = {"Host": "localhost", "Connection": "close", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in lines.items()), "", ""]).encode()


def refused(answer: bytes, *statuses: int) -> str:
    """The one sentence of a refusal."""
    first, _, rest = answer.partition(b"\r\n")
    assert int(first.split()[1]) in statuses, answer[:300]
    sentence = json.loads(rest.partition(b"\r\n\r\n")[2])["error"]
    assert 10 < len(sentence) < 300 and "\n" not in sentence and "/tmp" not in sentence
    return str(sentence)


def labels(served: Served) -> set[tuple[str, str, str]]:
    text = served.ask("/metrics").body.decode()
    assert len(text) < 200_000
    return {(m[1], m[2], m[3]) for m in re.finditer(r'_total\{method="(.*?)",path="(.*?)",status="(.*?)"\}', text)}


def test_no_label_and_no_line_of_the_log_is_of_a_clients_making(attacked: Served) -> None:
    before = attacked.log.stat().st_size
    with memory_kept(attacked):
        for number in range(300):
            method = f"M{number}" + "X" * 60_000
            assert "the method of a request" in refused(raw(attacked, head(method, "/healthz")), 405)
        for number in range(100):
            path = f"/{number}/" + "%C3%A9" * 150
            refused(raw(attacked, head("GET", path)), 404)
            refused(raw(attacked, head("GET", f"/v1/uploads/{number}")), 404, 405)
            refused(raw(attacked, head("DELETE", f"/v1/uploads/{'z' * 500}{number}")), 422)
    result = labels(attacked)
    assert {method for method, _, _ in result} <= {"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "other"}
    paths = {path for _, path, _ in result}
    assert {"/healthz", "/v1/uploads/{number}", "other"} <= paths and len(paths) < 30
    assert all(re.fullmatch(r"\d{3}|other", status) for _, _, status in result)
    assert attacked.log.stat().st_size - before < 600 * 2000


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (head("GET", "/healthz?" + "q" * 40_000), (414,)),
        (head("GET", "/" + "p" * 5_000), (414,)),
        (head("GET", "/healthz", Cookie="c" * 20_000), (431,)),
        (head("GET", "/healthz", **{f"H{i}": "x" for i in range(200)}), (431,)),
        (head("GET", "/healthz", Cookie="c" * 200_000), (400,)),
        (head("POST", "/v1/predict", Content_Length="9" * 400) + b"{}", (400, 413)),
        (head("POST", "/v1/predict", Content_Length="-1"), (400, 413)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500 + b"\r\n\r\n", (400,)),
    ],
)
def test_a_head_that_is_too_long_or_none_is_refused(attacked: Served, sent: bytes, statuses: tuple[int, ...]) -> None:
    refused(raw(attacked, sent), *statuses)


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/budget", "/mcp", "/gradio_api/queue/join", "/gradio_api/cancel"])
def test_a_body_without_a_length_is_read_no_further_than_its_limit(attacked: Served, path: str) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    kind = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    with memory_kept(attacked), socket.create_connection(place_of(attacked), timeout=60) as client:
        client.sendall(head("POST", path, Transfer_Encoding="chunked", **kind))
        with contextlib.suppress(OSError):
            for _ in range(17):  # more than a request may have, and without an end
                client.sendall(chunk)
        assert client.recv(65536).split()[1] in (b"413", b"400")


def test_a_compressed_body_is_not_unpacked(attacked: Served) -> None:
    bomb = gzip.compress(b'{"model": "' + b"x" * 200_000_000, 9)
    with memory_kept(attacked):
        reply = attacked.ask("/v1/predict", raw=bomb, Content_Encoding="gzip")
    assert reply.status == 400 and "error" in reply.body


def test_the_name_of_a_field_comes_back_cut(attacked: Served) -> None:
    reply = attacked.ask("/v1/predict", {**QUESTION, "x" * 500_000: 1})
    assert reply.status == 422 and len(reply.body["error"]) < 300


def test_a_device_that_is_no_device_is_refused_in_one_sentence_and_soon(attacked: Served) -> None:
    for fields in ({f"k{n}": 1 for n in range(50_000)}, {"calibrated": {f"k{n}": "x" for n in range(40_000)}},
                   {"name": "x" * 900_000, "memory_gb": 24}, {"unsupported": ["x" * 90] * 9_000}):  # fmt: skip
        began = time.monotonic()
        reply = attacked.ask("/v1/predict", {**QUESTION, "device": fields})
        assert reply.status == 422 and len(reply.body["error"]) < 1_500
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("join", {"session_hash": "x", "fn_index": 99_999, "data": []}),
        ("join", {"session_hash": "x", "fn_index": -1, "data": []}),
        ("join", {"session_hash": "x", "fn_index": [], "data": []}),
        ("join", {"session_hash": "x", "data": []}),
        ("join", {"session_hash": "x", "fn_index": True, "data": []}),
        ("join", [1]),
        ("cancel", {"session_hash": ["x" * 50_000]}),
        ("reset", {"event_id": {}}),
    ],
)
def test_questions_that_the_page_does_not_ask_are_refused_with_a_sentence(
    attacked: Served, path: str, body: Any
) -> None:
    sent = json.dumps(body).encode()
    where = {"join": "/gradio_api/queue/join"}.get(path, f"/gradio_api/{path}")
    kind = {"Content_Type": "application/json", "Content_Length": str(len(sent))}
    refused(raw(attacked, head("POST", where, **kind) + sent), 422)
    refused(raw(attacked, head("GET", "/assets/nothing.js")), 404)
    assert "Traceback" not in attacked.log.read_text()


def test_mcp_opens_no_stream_and_refuses_in_one_sentence(attacked: Served) -> None:
    both = {"Accept": "application/json, text/event-stream"}
    sent = [
        (head("GET", "/mcp", Accept="text/event-stream"), 405), (head("DELETE", "/mcp", **both), 405),
        (head("POST", "/mcp", Content_Type="text/plain", Content_Length="2", **both) + b"{}", 400),
        (head("POST", "/mcp", Content_Type="application/json", Content_Length="2", **both) + b"{}", 400),
        (head("POST", "/mcp", Content_Type="application/json", Content_Length="2", Accept="text/html") + b"{}", 406),
        (head("POST", "/mcp", Content_Type="application/json", Content_Length="90000", **both) + b"[" * 90000, 400),
    ]  # fmt: skip
    for request, status in sent:
        first, _, rest = raw(attacked, request).partition(b"\r\n")
        sentence = json.loads(rest.partition(b"\r\n\r\n")[2])["error"]["message"]
        assert int(first.split()[1]) == status and 10 < len(sentence) < 100, (request[:40], first)


def test_questions_that_all_differ_are_not_kept(attacked: Served) -> None:
    device = {"memory_gb": 24, "bandwidth_gbs": 300, "fp32_tflops": 30}
    with memory_kept(attacked):
        for number in range(1, 251):
            own = {**device, "id": f"d{number}", "name": "n" * 900 + str(number), "bandwidth_gbs": 300 + number}
            assert attacked.ask("/v1/predict", {**QUESTION, "batch": number, "device": own}).status == 200
            assert attacked.ask("/v1/predict", {**QUESTION, "model": f"n{number}" + "x" * 300}).status == 422
            assert attacked.ask(f"/v1/devices?name=n{number}").status == 422


HOSTS = ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "evil@localhost",
         "10.1.2.3", "[::2]", "localhost:80/../", "0.0.0.0")  # fmt: skip


@pytest.mark.parametrize(
    "path", ["/", "/config", "/healthz", "/metrics", "/openapi.json", "/docs", "/v1/devices", "/mcp"]
)
def test_other_hosts_are_not_answered(attacked: Served, path: str) -> None:
    for host in HOSTS:
        refused(raw(attacked, head("GET", path, Host=host)), 400, 421)
    refused(raw(attacked, head("GET", path, X_Forwarded_Host="evil.example")), 421)
    refused(raw(attacked, head("GET", path, Origin="http://evil.example")), 403)
    refused(raw(attacked, head("GET", path, Origin="null")), 403)
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8000"):
        assert b" 421 " not in raw(attacked, head("GET", path, Host=host))[:40]


def test_a_name_may_be_allowed_and_the_address_that_is_bound_is(tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    options = (
        "--no-page",
        "--workers",
        "1",
        "--host",
        "0.0.0.0",
        "--allowed-host",
        "forerun.example",
        "--trusted-proxy",
        "127.0.0.9",
    )
    with serving(tmp_path, *options, FORERUN_TOKEN=token, forked=True) as served:
        for host in ("forerun.example", "127.0.0.1"):
            assert b" 200 " in raw(served, head("GET", "/healthz", Host=host))[:20]
        request = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
        kind = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
        known = {"Origin": "https://forerun.example", "Authorization": f"Bearer {token}"}
        length = str(len(request))
        sent = head("POST", "/mcp", Host="forerun.example", Content_Length=length, **kind, **known) + request
        assert b" 200 " in raw(served, sent)[:20]
        refused(raw(served, head("GET", "/healthz", Host="evil.example")), 421)


def test_rates_hold_on_every_route_and_before_the_token_and_no_header_lifts_them(tmp_path: Path) -> None:
    with serving(
        tmp_path, "--rate", "0.05", "--workers", "1", FORERUN_TOKEN="a-token-of-some-length", forked=True
    ) as served:
        for path in ("/v1/devices", "/", "/metrics", "/nothing", "/healthz"):
            reply = [served.ask(path, X_Forwarded_For=f"10.0.0.{number}").status for number in range(20)]
            assert reply.count(429) > 5, (path, reply)
            assert set(reply) <= {401, 429, 200}
        limited = served.ask("/v1/devices")
        assert limited.body["error"] == "rate limit exceeded" and int(limited.headers["retry-after"]) >= 1


def parts(*files: tuple[str, bytes]) -> bytes:
    sent = b""
    for name, content in files:
        sent += f'--b\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
        sent += content + b"\r\n"
    return sent + b"--b--\r\n"


def folder_of(served: Served) -> Path:
    """Where the server keeps uploads: the working folder of a worker is beside it."""
    worker = next(p for p in psutil.Process(served.pid).children() if "forerun.web.workers" in " ".join(p.cmdline()))
    return Path(worker.cwd()).parent


def bytes_in(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def test_the_pages_own_upload_address_is_closed(attacked: Served) -> None:
    cache = Path(tempfile.gettempdir()) / "gradio"
    before = bytes_in(cache) if cache.exists() else 0
    with memory_kept(attacked):
        for name in ("model.onnx", "x.sh", "../../x.onnx"):
            reply = attacked.ask(
                "/gradio_api/upload?upload_id=a", raw=parts((name, b"\x08" * 40_000)),
                Content_Type="multipart/form-data; boundary=b",
            )  # fmt: skip
            assert reply.status == 404 and "/tmp" not in json.dumps(reply.body)
    assert (bytes_in(cache) if cache.exists() else 0) == before


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gradio_api/file=/etc/passwd"), ("GET", "/gradio_api/file/etc/passwd"),
        ("GET", "/gradio_api/proxy=http://127.0.0.1:1/"), ("GET", "/gradio_api/upload_progress?upload_id=x"),
        ("POST", "/gradio_api/component_server"), ("POST", "/gradio_api/run/ask"), ("POST", "/gradio_api/call/ask"),
        ("GET", "/gradio_api/deep_link?session_hash=x"), ("POST", "/gradio_api/process_recording"),
        ("POST", "/gradio_api/vibe-edit"), ("GET", "/gradio_api/vibe-code"), ("POST", "/login"), ("GET", "/monitoring"),
        ("POST", "/gradio_api/stream/x"), ("GET", "/gradio_api/runs"), ("GET", "/gradio_api/dev/reload"),
        ("GET", "/gradio_api/custom_component/1/client/component/..%2f..%2fetc"), ("GET", "/static/../../etc/passwd"),
        ("GET", "/assets/..%2f..%2f..%2fetc%2fpasswd"), ("PUT", "/"), ("GET", f"/gradio_api/heartbeat/{'x' * 900}"),
    ],
)  # fmt: skip
def test_what_gradio_brings_and_the_page_does_not_need_is_not_there(attacked: Served, method: str, path: str) -> None:
    body = b'{"data": [], "session_hash": "x", "component_id": 1, "fn_name": "x"}' if method == "POST" else b""
    kind = {"Content_Type": "application/json", "Content_Length": str(len(body))}
    refused(raw(attacked, head(method, path, **kind) + body), 404)


def test_answers_that_no_browser_reads_are_not_kept(attacked: Served) -> None:
    form = page_question(attacked)
    with memory_kept(attacked):
        result = []
        for number in range(150):
            result.append(attacked.ask("/gradio_api/queue/join", {**form, "session_hash": f"s{number}"}).status)
        one = [attacked.ask("/gradio_api/queue/join", {**form, "session_hash": "one"}).status for _ in range(40)]
        assert set(result) <= {200, 503} and 429 in one
        for session in ("x" * 60_000, "a b", "../x", None, 3):
            assert attacked.ask("/gradio_api/queue/join", {**form, "session_hash": session}).status in (413, 422)
        assert attacked.ask("/gradio_api/queue/data?session_hash=nobody").status == 404
    assert attacked.log.read_text().count("Traceback") == 0


def test_all_uploads_share_one_quota_and_the_longest_unused_make_room(tmp_path: Path) -> None:
    script = (
        "from forerun.web.server import serve\nfrom forerun.web.settings import ServerSettings\n"
        "serve(ServerSettings(port=0, rate_per_s=0, upload_mb=4, uploads_mb=10, most_uploads=6, workers=1), page=False)"
    )
    with serving(tmp_path, run=["-c", script], forked=True) as served:
        uploads = folder_of(served) / "uploads"
        content = small_onnx() + b"\0" * 3_000_000

        def upload(content: bytes, name: str = "net.onnx") -> Any:
            return served.ask("/v1/uploads", raw=content, X_File_Name=name)

        with memory_kept(served):
            sent = [upload(content).body["model"].removeprefix("upload:") for _ in range(9)]
            assert bytes_in(uploads) <= 10 * 2**20
            assert {p.name for p in uploads.iterdir()} == set(sent[-3:])
            small = [upload(small_onnx()).status for _ in range(20)]
            assert set(small) == {201} and len(list(uploads.iterdir())) == 6
            too_large = upload(small_onnx() + b"\0" * 5 * 2**20)
            assert too_large.status == 413 and len(list(uploads.iterdir())) == 6
            for name in ("x.sh", "weights.safetensors", "model.pt", "page.html"):
                assert upload(small_onnx(), name).status == 422
            held = [socket.create_connection(place_of(served)) for _ in range(4)]
            for client in held:
                client.sendall(head("POST", "/v1/uploads", X_File_Name="a.onnx", Content_Length="3000000") + b"\x08")
            for _ in range(100):
                if (busy := upload(small_onnx())).status == 413:
                    break
            assert busy.status == 413 and "try again" in busy.body["error"]
            for client in held:
                client.close()
        assert str(uploads.parent) not in json.dumps(served.ask("/v1/devices?name=upload:" + sent[-1]).body)


def test_an_upload_that_nobody_uses_is_swept(tmp_path: Path) -> None:
    script = (
        "from forerun.web.server import serve\nfrom forerun.web.settings import ServerSettings\n"
        "serve(ServerSettings(port=0, rate_per_s=0, upload_minutes=0.05, workers=1), page=False)"
    )
    with serving(tmp_path, run=["-c", script], forked=True) as served:
        sent = served.ask("/v1/uploads", raw=small_onnx(), X_File_Name="net.onnx")
        assert sent.status == 201 and sent.body["kept_minutes"] == 0.05
        uploads = folder_of(served) / "uploads"
        _until(lambda: not any(uploads.iterdir()))
        gone = served.ask("/v1/predict", {"model": sent.body["model"], "device": "l4"})
        assert gone.status == 422 and "uploads are deleted" in gone.body["error"]


def test_what_a_killed_server_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    options = ("--no-page", "--workers", "1")
    with serving(tmp_path, *options, forked=True) as served:
        left = folder_of(served)
        assert served.ask("/v1/uploads", raw=small_onnx(), X_File_Name="net.onnx").status == 201
        workers = psutil.Process(served.pid).children()
        os.kill(served.pid, signal.SIGKILL)
        psutil.wait_procs(workers, timeout=60)
        assert bytes_in(left / "uploads") > 0
    with serving(tmp_path, *options, forked=True) as one, serving(tmp_path, *options, forked=True) as other:
        assert not left.exists()
        assert folder_of(one).exists() and folder_of(other).exists(), "a server that runs keeps its folder"
        stored = [folder_of(one), folder_of(other)]
    assert not any(folder.exists() for folder in stored)


def _closes(client: socket.socket, trickle: bytes) -> bytes:
    """Sends a byte now and then until the server has enough of it; what it said."""
    printed = b""
    client.settimeout(0.5)
    for _ in range(400):
        try:
            client.sendall(trickle)
            part = client.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return printed
        if not part:
            return printed
        printed += part
    raise AssertionError("the server waits for a slow client without end")


SLOW = {
    "nothing": (b"", b""),
    "a head": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X-A: b\r\n"),
    "a body": (head("POST", "/v1/predict", Content_Length="500000"), b" "),
    "a body in chunks": (head("POST", "/v1/predict", Transfer_Encoding="chunked"), b"1\r\n \r\n"),
    "an upload": (head("POST", "/v1/uploads", X_File_Name="a.onnx", Content_Length="500000"), b"\x08"),
    "a body that nobody wants": (
        head("POST", "/nothing", Connection="keep-alive", Content_Length="500000"), b" "
    ),
    "a question of the page": (head("POST", "/gradio_api/queue/join", Content_Length="50000"), b" "),
    "a question over MCP": (
        head("POST", "/mcp", Content_Length="50000", Content_Type="application/json", Accept="*/*"), b" "
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SLOW)
def test_slow_senders_are_timed_out(attacked: Served, what: str) -> None:
    first, trickle = SLOW[what]
    with socket.create_connection(place_of(attacked)) as client:
        client.sendall(first)
        printed = _closes(client, trickle)
    if what == "nothing":
        assert printed == b""
    elif what == "a body that nobody wants":
        assert b" 404 " in printed[:40]
    else:
        refused(printed, 408)


def test_slow_readers_are_timed_out_and_nothing_is_kept_for_them(attacked: Served) -> None:
    clients = []
    with memory_kept(attacked):
        for number in range(100):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(place_of(attacked))
            request = head("GET", READ[number % 3], Connection="keep-alive")
            client.sendall(request * 40)  # and reads none of it
            clients.append(client)
        _until(lambda: len(psutil.Process(attacked.pid).net_connections()) < 20)
    for client in clients:
        client.close()


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.2)
    raise AssertionError("the server keeps its connections")


def test_one_client_has_so_many_connections(attacked: Served) -> None:
    clients = [socket.create_connection(place_of(attacked), timeout=60) for _ in range(140)]
    refused(_read_all(clients[-1]), 429)
    for client in clients:
        client.close()
    _until(lambda: len(psutil.Process(attacked.pid).net_connections()) < 20)
    assert attacked.ask("/healthz").status == 200


def test_no_web_socket_is_opened(attacked: Served) -> None:
    connection = http.client.HTTPConnection(attacked.url.removeprefix("http://"), timeout=60)
    request = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "eA=="}
    connection.request("GET", "/queue/join", headers=request)
    assert connection.getresponse().status == 404
    connection.close()


def test_building_the_app_changes_neither_folder_nor_environment(tmp_path: Path) -> None:
    script = """
import os, tempfile
before, here = dict(os.environ), os.getcwd()
made = set(os.listdir(tempfile.gettempdir()))
from forerun.web.server import make_app
from forerun.web.settings import ServerSettings
from starlette.testclient import TestClient
question = {"model": "cnn:depth=2,filters=8", "device": "l4"}
one, other = make_app(ServerSettings(workers=1)), make_app(ServerSettings(workers=1), page=False)
assert (dict(os.environ), os.getcwd()) == (before, here), "when it is built"
assert not {n for n in os.listdir(tempfile.gettempdir()) if n.startswith("forerun-")} - made
with TestClient(one) as client, TestClient(other) as another:
    net = open("net.onnx", "rb").read()
    sent = client.post("/v1/uploads", content=net, headers={"X-File-Name": "net.onnx"}).json()["model"]
    for asked in (question, {**question, "model": sent}, {**question, "model": sent}):
        assert client.post("/v1/predict", json=asked).status_code == 200
    assert another.post("/v1/predict", json={**question, "model": sent}).status_code == 422, "each has its own uploads"
    assert client.get("/").status_code == 200
    assert (dict(os.environ), os.getcwd()) == (before, here), set(os.environ.items()) ^ set(before.items())
assert (dict(os.environ), os.getcwd()) == (before, here), "when it ended"
"""
    (tmp_path / "net.onnx").write_bytes(small_onnx())
    of_libraries = {"KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}  # scikit-learn's, where it is imported
    places = {**os.environ, **of_libraries, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=places, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "wrong", [{"allowed_hosts": ("http://x",)}, {"allowed_hosts": ("a:80",)}, {"trusted_proxies": ("proxy",)},
              {"client_s": 0}]
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(forerun.ForerunError):
        ServerSettings(**wrong)
