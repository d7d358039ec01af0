"""How long a request to a model may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.frontends.huggingface import catalog


def context_tokens(model: Any) -> int | None:
    """Tokens of prompt and answer together that engines take of a named architecture or a config; None where they are
    not known."""
    known = catalog.architecture(model) if isinstance(model, str) else None
    config = model if isinstance(model, Mapping) else {} if known is None else known.config
    text = config.get("text_config", config)
    tokens = text.get("max_position_embeddings") if isinstance(text, Mapping) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else None
