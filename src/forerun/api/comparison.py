"""What `forerun.compare` returns: a table of pandas that shows itself in a notebook as a comparison."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from forerun._util.rendered import Rendered


class Comparison(pd.DataFrame):
    """One model on several devices, a row each. What is cut out of it or computed from it is a plain DataFrame."""

    #: pandas copies these attributes with the table.
    _metadata = ("confidence",)
    confidence: float

    @classmethod
    def of(cls, frame: pd.DataFrame, confidence: float) -> Comparison:
        """The same table; `confidence` is that of its intervals."""
        made = cls(frame)
        made.confidence = confidence
        return made

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    _repr_html_ = Rendered._repr_html_
