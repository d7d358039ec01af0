"""The built-in catalogue of Hugging Face architectures: a config for a model id, without network and hub.

The facts are in `hf_catalog/*.json`, one file per task and one model per line. A config holds what the checkpoint's
config.json says about shapes, in that file's own (published) field names, so `AutoConfig.for_model(**config)` and
`AutoModel.from_config` rebuild exactly this model. Each line names where its facts come from and what was checked.

Each config has the dtype and format of its checkpoint: `torch_dtype`, and `quantization_config` where the weights are
quantised. `variants` has the fields in which the checkpoint of an alias differs from that of its entry.

`parameters` counts `AutoModelForCausalLM` for causal language models and `AutoModel` for everything else, tied
weights once; it is None without a published count.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError

TASKS = ("causal-lm", "encoder", "seq2seq", "vision", "speech", "multimodal")
_FOLDER = Path(__file__).with_suffix("")


@dataclass(frozen=True)
class Architecture:
    """One published architecture: its id, the config that rebuilds it, and where these facts come from."""

    id: str
    config: dict[str, Any]
    parameters: int | None
    source: str
    date: str
    aliases: tuple[str, ...]
    task: str
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)  # alias -> fields in which its config differs


def architecture(name: str) -> Architecture | None:
    """The architecture with this id or alias, or None. Case does not matter; the owner may be omitted
    ("Llama-3.1-8B") where only one architecture has that name. Never a substring match."""
    key = name.strip().lower()
    if not _occurs(key):
        return None
    full, bare = _names()
    entry = full.get(key) or bare.get(key)
    # A copy, because transformers edits nested dicts (rope_scaling) of the config it is given.
    return replace(entry, config=copy.deepcopy(entry.config)) if entry else None


def architecture_ids() -> list[str]:
    """The id of every architecture, in the order of the files."""
    return [entry.id for entry in _entries()]


def families_of_task(task: str) -> list[str]:
    """The families (`model_type`) of the architectures of a task."""
    return sorted({str(entry.config["model_type"]) for entry in _entries() if entry.task == task})


def known_names() -> list[str]:
    """Every id and alias, for suggestions after a miss."""
    return [name for entry in _entries() for name in (entry.id, *entry.aliases)]


@functools.lru_cache(maxsize=1024)
def _occurs(key: str) -> bool:
    """Whether the files have this text: a name that they have not is that of no architecture, which is seen without
    parsing them."""
    return key in _text()


@functools.cache
def _text() -> str:
    return "".join(_file(task) for task in TASKS).lower()


def _file(task: str) -> str:
    return (_FOLDER / f"{task}.json").read_text(encoding="utf-8")


@functools.cache
def _entries() -> tuple[Architecture, ...]:
    return tuple(entry for task in TASKS for entry in _read(task))


def _read(task: str) -> Iterator[Architecture]:
    for line in json.loads(_file(task)):
        yield Architecture(**{**line, "aliases": tuple(line["aliases"])})


@functools.cache
def _names() -> tuple[dict[str, Architecture], dict[str, Architecture]]:
    """Two indexes: full names, and bare names (no owner) that only one architecture has."""
    full: dict[str, Architecture] = {}
    bare: dict[str, Architecture | None] = {}
    for entry in _entries():
        for name in (entry.id, *entry.aliases):
            key = name.lower()
            if key in full:
                raise ForerunError(f"the model catalogue has {name} twice: in {full[key].id} and in {entry.id}")
            full[key] = published = _as_published(entry, name)
            short = key.rpartition("/")[2]
            bare[short] = published if bare.get(short, published) is published else None
    return full, {short: entry for short, entry in bare.items() if entry is not None}


def _as_published(entry: Architecture, name: str) -> Architecture:
    """The entry with the config that the checkpoint of this name has."""
    if name not in entry.variants:
        return entry
    config = {**entry.config, **entry.variants[name]}
    return replace(entry, config={key: value for key, value in config.items() if value is not None})
