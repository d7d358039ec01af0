"""A language model behind an OpenAI-compatible address that reads which of some sentences states a number."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from forerun._util.readable import short
from forerun.errors import ForerunError

METHOD = "language model"
MOST = 8  # sentences in one question
TIMEOUT_S = 120.0
MAX_BYTES = 2**20
_TASK = (
    "You read notes on a machine-learning model. Some sentences are listed, each with a number found in it. "
    "Answer with the index of the one whose number is what is asked for, as JSON such as "
    '{"index": 2}; if none is, {"index": null}.'
)


class Reader:
    """Asks a language model to choose among candidates, so that it cannot invent a number."""

    def __init__(self, url: str, model: str = "default") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ForerunError(f"the address of a language model begins with http:// or https://, got {short(url)}")
        base = url.rstrip("/")
        self.url = base if base.endswith("/chat/completions") else f"{base}/chat/completions"
        self.model = model
        # A proxy for the internet does not know this machine's own addresses.
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        self._opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))

    def choose(self, model: str, question: str, candidates: Sequence[tuple[str, float]]) -> int | None:
        """Which of some sentences with numbers answers a question on a model; None if the language model sees none."""
        listed = [f"{index}: {value:.6g} in: {sentence}" for index, (sentence, value) in enumerate(candidates[:MOST])]
        prompt = f"Model: {model}\nAsked for: {question}\n" + "\n".join(listed)
        answer = self._ask([{"role": "system", "content": _TASK}, {"role": "user", "content": prompt}])
        index = _index(answer)
        return index if index is not None and 0 <= index < len(listed) else None

    def _ask(self, messages: list[dict[str, str]]) -> str:
        """The text of the answer to some messages."""
        body = json.dumps({"model": self.model, "messages": messages, "temperature": 0, "max_tokens": 64}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                content: Any = json.loads(response.read(MAX_BYTES))
            text = content["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            raise ForerunError(f"the language model at {self.url} answered {error.code} {error.reason}") from error
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            raise ForerunError(f"the language model at {self.url} does not respond: {reason}") from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ForerunError(f"the answer from {self.url} is not one of an OpenAI-compatible server") from error
        return text if isinstance(text, str) else ""


def _index(answer: str) -> int | None:
    """The index in an answer, as JSON or as the first number of it; None for null or no number."""
    if match := re.search(r'"index"\s*:\s*(null|\d{1,3})', answer):
        return None if match[1] == "null" else int(match[1])
    bare = re.fullmatch(r"\D{0,20}(\d{1,3})\D{0,20}", answer.strip())
    return int(bare[1]) if bare else None
