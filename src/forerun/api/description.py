"""`describe`: a model's graph in words, by program, and what a fitted language model says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun._util.rendered import Rendered
from forerun.api.questions import given_model, profiled
from forerun.errors import ForerunError
from forerun.graph.description import Description, errors, read_numbers
from forerun.graph.description import describe as describe_graph
from forerun.predictors.base import Predictor
from forerun.predictors.registry import load_predictor, saved_folder

#: The predictor with a language model, where it is installed fitted.
USUAL = "gnn-llm"


@dataclass(frozen=True)
class DescribedModel(Rendered):
    """The numbers of a graph, the same in words, and what a language model says of it."""

    model: str
    known: Description
    said: str | None = None
    said_by: str | None = None

    @property
    def text(self) -> str:
        """All that is known, in words."""
        return self.known.text(len(self.known.kinds))

    @property
    def told(self) -> Mapping[str, float]:
        """The numbers that the language model names, by what they are of."""
        return {} if self.said is None else read_numbers(self.said)

    @property
    def errors(self) -> dict[str, float | None]:
        """How far each of its numbers is off, as a share; None where it names none."""
        return {} if self.said is None else errors(self.told, self.known)

    def to_dict(self) -> dict[str, Any]:
        said = None
        if self.said is not None:
            said = {"by": self.said_by, "text": self.said, "numbers": dict(self.told), "errors": self.errors}
        kinds = {kind: dict(of) for kind, of in self.known.kinds.items()}
        return {"model": self.model, **self.known.whole, "kinds": kinds, "text": self.text, "language_model": said}


def describe(model: Any, *, predictor: str | Path | Predictor | None = None, **settings: Any) -> DescribedModel:
    """A model's graph in words; `settings` are those of a workload (batch, dtype, mode ...)."""
    workload = given_model(model, settings)
    if workload.devices > 1:
        raise ForerunError("describe is about the graph of one device: leave tp and pp out")
    question = profiled(workload)
    known = describe_graph(question.columns)
    if predictor is None and saved_folder(USUAL) is None:
        return DescribedModel(question.graph.name, known)
    estimator = load_predictor(USUAL if predictor is None else predictor)
    said = estimator.says(question.columns)
    if said is None:
        raise ForerunError(f"the predictor {estimator.name} has no words for a graph: give a fitted {USUAL}")
    return DescribedModel(question.graph.name, known, said, estimator.name)
