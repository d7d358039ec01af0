"""What `forerun.compare` returns: a table of pandas that shows itself in a notebook as a comparison."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd

from forerun._util.rendered import Rendered
from forerun.decisions.compare.served import Served


class Comparison(pd.DataFrame):
    """One model on several devices, a row each. What is cut out of it or computed from it is a plain DataFrame."""

    #: pandas copies these attributes with the table.
    _metadata = ("confidence", "_question")
    confidence: float
    _question: Served | None

    @classmethod
    def of(cls, frame: pd.DataFrame, confidence: float, question: Served | None = None) -> Comparison:
        """The same table; `confidence` is that of its intervals, `question` that of a language model's service."""
        made = cls(frame)
        made.confidence = confidence
        made._question = question
        return made

    @property
    def served(self) -> Served | None:
        """The best deployment of each device in a serving engine, planned when it is first read; None for a model that
        is no language model, and for a call whose mode or other settings were chosen."""
        return self._question

    def plain_rows(self) -> list[dict[str, Any]]:
        """Plain data, a dict per device; those of a language model have their deployment as `serving`."""
        rows: list[dict[str, Any]] = json.loads(self.to_json(orient="records"))
        served = self.served
        if served is not None:
            of_device = served.by_device()
            rows = [row | {"serving": of_device[row["device"]]} for row in rows]
        return rows

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    _repr_html_ = Rendered._repr_html_
