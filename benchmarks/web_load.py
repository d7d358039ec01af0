"""The server under load, on loopback: mixed cached predictions of many clients at once, beside the direct call.

    python benchmarks/web_load.py --clients 50 --seconds 30 --requests 20000

Prints requests per second, the median and the 99th percentile of the latency, errors, and the server's memory after the
first thousand requests and at the end; then the same questions asked of `forerun.predict` in one thread. With `--keep`
the figures go to benchmarks/speed.json, which benchmarks/readme.py reads.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
from web_server import Served, serving

import forerun

KEPT = Path(__file__).with_name("speed.json")
MODELS = ("resnet50", "resnet18", "mobilenet_v3_large", "cnn:depth=6,filters=32")
QUESTIONS = [
    {"model": model, "device": device, "batch": batch}
    for model in MODELS for device in ("t4", "l4", "a100-sxm4-40gb", "h100-sxm") for batch in (1, 8, 64)
]  # fmt: skip


def message(question: dict[str, object]) -> bytes:
    body = json.dumps(question).encode()
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
    return f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n".encode() + body


async def client(
    port: int, until: float, messages: itertools.cycle[bytes], seen: list[float], bad: list[bytes]
) -> None:
    """One connection that asks again as soon as it is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        began = time.monotonic()
        writer.write(next(messages))
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        seen.append(time.monotonic() - began)
        if not head.startswith(b"HTTP/1.1 200"):
            bad.append(head.split(b"\r\n")[0])
    writer.close()


async def load(served: Served, clients: int, seconds: float) -> tuple[list[float], list[bytes]]:
    port = int(served.url.rpartition(":")[2])
    seen: list[float] = []
    bad: list[bytes] = []
    messages = itertools.cycle([message(q) for q in QUESTIONS])
    until = time.monotonic() + seconds
    await asyncio.gather(*(client(port, until, messages, seen, bad) for _ in range(clients)))
    return seen, bad


def memory_mb(served: Served) -> float:
    return psutil.Process(served.pid).memory_info().rss / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--requests", type=int, default=20_000, help="at least so many, for the memory")
    parser.add_argument("--keep", metavar="MACHINE", help="keep the figures for the README; on what they were measured")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("FORERUN_CACHE", folder)
        with serving(Path(folder), "--rate", "0") as served:
            for question in QUESTIONS:
                assert served.ask("/v1/predict", question).status == 200, question
            asyncio.run(load(served, wanted.clients, 2))
            first = memory_mb(served)
            seen, bad = asyncio.run(load(served, wanted.clients, wanted.seconds))
            ms = 1e3 * np.array(seen)
            print(f"{wanted.clients} clients for {wanted.seconds:g} s: {len(seen) / wanted.seconds:,.0f} requests/s, "
                  f"median {np.median(ms):.0f} ms, 99 % {np.percentile(ms, 99):.0f} ms, {len(bad)} errors")  # fmt: skip
            total = len(seen)
            while total < wanted.requests:
                more, worse = asyncio.run(load(served, wanted.clients, 10))
                total, bad = total + len(more), bad + worse
            last = memory_mb(served)
            print(f"memory of the server: {first:,.0f} MB at first, {last:,.0f} MB after {total:,} requests")
        for question in QUESTIONS:
            forerun.predict(**question)  # type: ignore[arg-type]
        began, many = time.monotonic(), 0
        while time.monotonic() - began < 5:
            forerun.predict(**QUESTIONS[many % len(QUESTIONS)])  # type: ignore[arg-type]
            many += 1
        print(f"the direct call, one thread: {many / 5:,.0f} predictions/s, {5e3 / many:.1f} ms each")
    if wanted.keep:
        kept = {
            "machine": wanted.keep, "clients": wanted.clients, "seconds": wanted.seconds,
            "requests_per_s": round(len(seen) / wanted.seconds), "median_s": round(float(np.median(ms)) / 1e3, 2),
            "p99_s": round(float(np.percentile(ms, 99)) / 1e3, 2), "errors": len(bad),
            "memory_mb": [round(first), round(last)], "requests": total, "direct_ms": round(5e3 / many, 1),
        }  # fmt: skip
        KEPT.write_text(json.dumps({**json.loads(KEPT.read_text()), "server": kept}, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
