"""How long a request to a model may be."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from forerun.frontends.huggingface import catalog
from forerun.frontends.huggingface.sizes import context_limit


def context_tokens(model: Any) -> int | None:
    """Tokens of prompt and answer together that engines take of a named architecture or a config; None where they are
    not known. Nothing is captured for it."""
    known = catalog.architecture(model) if isinstance(model, str) else None
    config = model if isinstance(model, Mapping) else {} if known is None else known.config
    text = config.get("text_config", config)
    return context_limit(SimpleNamespace(**{"model_type": "", **text})) if isinstance(text, Mapping) else None
