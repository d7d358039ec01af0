"""Schemathesis against the server's own OpenAPI document: generated requests, valid and not; none may be a 5xx.

    python benchmarks/web_fuzz.py --requests 2000

Starts a server of its own. Prints how many requests were sent and what the statuses were; exit code 1 after a 5xx, or
where an answer is not what the document promises.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
from web_server import serving

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), "--no-page", "--rate", "0") as served:
        with urllib.request.urlopen(f"{served.url}/openapi.json") as found:
            paths = json.load(found)["paths"]
        operations = sum(len(methods) for methods in paths.values())
        each = -(-wanted.requests // operations)
        code, sent = 0, 0
        while sent < wanted.requests and not code:  # an operation without arguments has one request only
            code = subprocess.run([
                str(Path(sys.executable).parent / "schemathesis"), "run", f"{served.url}/openapi.json",
                "--checks", CHECKS, "--max-examples", str(each), "--seed", str(wanted.seed + sent), "--phases",
                "examples,coverage,fuzzing", "--request-timeout", "150", "--no-color",
            ], check=False).returncode  # fmt: skip
            statuses = collections.Counter(re.findall(r'"status": (\d+)', served.log.read_text()))
            sent = sum(statuses.values())
        print(f"{sent:,} requests to {operations} operations: ", end="")
        print(", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items())))
        return 1 if code or any(status.startswith("5") for status in statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
