"""Configs from the Hugging Face hub: through its own client, behind a proxy and without a connection."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.workload import Workload

CONFIG = {"model_type": "bert", "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2,
          "intermediate_size": 64, "vocab_size": 100}  # fmt: skip


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as a config needs; as a proxy it gets whole addresses."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        type(self).asked.append(f"{self.command} {self.path}")
        if "/acme/lost/" in self.path:
            self.close_connection = True  # without an answer
            return
        body = json.dumps(CONFIG).encode()
        if "/acme/tiny/" not in self.path or not self.path.endswith("config.json"):
            gated = "/acme/gated/" in self.path
            self.send_response(403 if gated else 404)
            self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
            body = b""
        else:
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("X-Repo-Commit", "a" * 40)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def hub() -> Iterator[tuple[str, list[str]]]:
    handler = type("Handler", (Hub,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler.asked
    server.shutdown()


def ask_hub(folder: Path, *names: str, **env: str) -> list[str]:
    """What a process of its own, with settings of the hub's client, makes of some ids."""
    code = (
        "import sys\n"
        "from forerun.errors import ForerunError\n"
        "from forerun.frontends.huggingface.config import load_config\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(load_config(name, False).model_type)\n"
        "    except ForerunError as e: print(e)\n"
    )
    clean = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, timeout=120, check=True,
        env={**clean, "HF_HOME": str(folder), **env},
    )  # fmt: skip
    return done.stdout.strip().splitlines()


def test_the_hub_is_asked_through_a_proxy(hub: tuple[str, list[str]], tmp_path: Path) -> None:
    address, asked = hub
    names = ("acme/tiny", "acme/nothing", "acme/gated", "acme/lost")
    found, none, gated, lost = ask_hub(tmp_path, *names, HTTP_PROXY=address, HF_ENDPOINT="http://hub.invalid")
    assert found == "bert"
    assert any(line.startswith("HEAD http://hub.invalid/acme/tiny/") for line in asked)
    reason = "it has no such model, or shows it only after login"
    assert none == (
        "acme/nothing is not in the built-in catalogue, and the Hugging Face hub did not provide it: "
        f"{reason}. Pass its config.json instead."
    )
    assert "did not provide it: access must be requested from its owner, and a login is needed." in gated
    assert "did not provide it: it cannot be reached from here." in lost


def test_offline_mode_is_the_hubs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ForerunError, match=r"not provide it: the hub's client is in offline mode \(HF_HUB_OFFLINE\)"):
        load_graph(Workload("acme/tiny"))
