"""Helpers for importers of language-model data: names of models, and several columns as one JSON column."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pandas as pd

from forerun.data.importers._naming import slug
from forerun.data.importers._shapes import json_column


def model_names(names: pd.Series, ours: Mapping[str, str], dataset: str) -> pd.Series:
    """The names that our frontends accept; `dataset/slug` for models that they do not have."""
    return names.map({name: ours.get(name) or f"{dataset}/{slug(name)}" for name in names.unique()})


def families(models: pd.Series) -> pd.Series:
    """The architecture (`llama`, `mixtral` …) of models in the catalogue; null for others."""
    return models.map({name: _family(name) for name in models.unique()}).astype(object)


def sources(models: pd.Series) -> pd.Series:
    """`hf` for models in the catalogue of Hugging Face architectures; null for others."""
    return families(models).map(lambda family: "hf" if isinstance(family, str) else None).astype(object)


def as_json(columns: pd.DataFrame | Mapping[str, Any], index: pd.Index | None = None) -> pd.Series:
    """One JSON object per row without nulls; null if it is empty."""
    return json_column(columns if isinstance(columns, pd.DataFrame) else pd.DataFrame(columns, index=index))


@functools.cache
def _family(model: str) -> str | None:
    from forerun.frontends.huggingface.catalog import architecture

    published = architecture(model)
    return str(published.config["model_type"]) if published else None
