"""The suite that every frontend passes, public so that those of other packages can be checked too: `check_frontend`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.base import Frontend, first_line
from forerun.frontends.loading import load_graph
from forerun.frontends.registry import frontends
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.graph.splice import with_hidden_ops
from forerun.graph.validate import validate
from forerun.workload import Workload

#: Models of forerun's own frontends: no other frontend may take one.
BUILT_IN = {
    "families": "cnn:depth=3,filters=4", "huggingface": "bert-base-uncased", "keras": "net.keras", "onnx": "net.onnx",
    "paddle": "net.pdmodel", "vision": "resnet50", "exported": "net.pt2", "torchscript": "net.torchscript",
    "python_file": "net.py:Net",
}  # fmt: skip
#: Names of no model: no frontend may take one.
STRANGERS: tuple[Any, ...] = (None, 7, 1.5, b"resnet50", [], {}, object(), "a name with spaces", Path("no/such/folder"))
#: What a frontend may not import to say whether it takes a model.
HEAVY = ("torch", "onnx", "tensorflow", "keras", "paddle", "transformers", "timm", "torchvision", "jax")
#: Seconds that `matches` may take, at its best of three.
MATCHES_S = 0.05
BATCHES = (1, 2, 8)
#: FLOPs of the same network may differ by this share between frontends, and by batch from a straight line.
TOLERANCE = 0.01


class FrontendFault(AssertionError):
    """What a frontend got wrong, in one sentence."""


@dataclass(frozen=True)
class Example:
    """A model that a frontend takes, and what is known of it: the same network elsewhere, or its figures."""

    model: Any
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the Workload: input_shape, seq_len ...
    same_as: Any = None  # the same network for another frontend, such as a torch.nn.Module
    same_settings: Mapping[str, Any] | None = None  # its settings, where they are not those of the model
    parameters: int | None = None
    flops: float | None = None  # at batch 1; the bias of a convolution is an op of its own

    def work(self, batch: int = 1) -> Workload:
        return Workload(self.model, batch=batch, **self.settings)


def check_frontend(frontend: Frontend, examples: Sequence[Example], foreign: Iterable[Any] = ()) -> list[str]:
    """Runs every check on a frontend; returns their names, or raises FrontendFault. `foreign`: models of others."""
    if not isinstance(frontend, Frontend):
        raise FrontendFault(f"{type(frontend).__name__} is not a subclass of forerun.frontends.base.Frontend")
    if not examples:
        raise FrontendFault("a frontend is checked with at least one example of a model")
    others = [model for name, model in BUILT_IN.items() if type(frontends()[name]) is not type(frontend)]
    subject = _Subject(frontend, examples, (*STRANGERS, *others, *foreign))
    checks = (_attributes, _leaves_alone, _takes_its_own, _key, _valid_graphs, _same_network, _batches, _refuses_junk)
    for check in checks:
        check(subject)
    return [check.__name__.strip("_") for check in checks]


@dataclass
class _Subject:
    """A frontend under test, with what it is tested on; every model is loaded once at a batch size."""

    frontend: Frontend
    examples: Sequence[Example]
    foreign: tuple[Any, ...]
    loaded: dict[tuple[int, int], Graph] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return type(self.frontend).__name__

    def graph(self, number: int, batch: int) -> Graph:
        if (number, batch) not in self.loaded:
            self.loaded[number, batch] = _load(self.frontend, self.examples[number], batch)
        return self.loaded[number, batch]


def _attributes(subject: _Subject) -> None:
    frontend, name = subject.frontend, subject.name
    if not frontend.takes:
        raise FrontendFault(f"{name}.takes does not say what the frontend takes")
    if not isinstance(frontend.priority, int):
        raise FrontendFault(f"{name}.priority is no whole number")
    for suffix in frontend.suffixes:
        if not suffix.startswith(".") or suffix != suffix.lower():
            raise FrontendFault(f"the suffix {suffix!r} of {name} does not begin with a dot or is not in lower case")
    for word in frontend.names()[:100]:
        if not frontend.matches(word):
            raise FrontendFault(f"{name} offers the name {word!r} and does not take it")


def _leaves_alone(subject: _Subject) -> None:
    for model in subject.foreign:
        if _matches(subject.frontend, model):
            raise FrontendFault(f"{subject.name} takes {model!r}, which is not its own")


def _takes_its_own(subject: _Subject) -> None:
    for example in subject.examples:
        if not _matches(subject.frontend, example.model):
            raise FrontendFault(f"{subject.name} does not take {example.model!r}")


def _matches(frontend: Frontend, model: Any) -> bool:
    """What `matches` answers; a FrontendFault when it fails, is slow, or imports a framework."""
    before = {name for name in HEAVY if name in sys.modules}
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        try:
            answer = frontend.matches(model)
        except Exception as e:
            raise FrontendFault(f"asked whether it takes {model!r}, the frontend raised {type(e).__name__}: {e}") from e
        seconds.append(time.perf_counter() - start)
    if imported := {name for name in HEAVY if name in sys.modules} - before:
        raise FrontendFault(f"to see whether it takes {model!r}, the frontend imported {', '.join(sorted(imported))}")
    if min(seconds) > MATCHES_S:
        raise FrontendFault(f"to see whether it takes {model!r}, the frontend needs {1000 * min(seconds):.0f} ms")
    if not isinstance(answer, bool):
        raise FrontendFault(f"matches({model!r}) is {answer!r} and neither True nor False")
    return answer


def _key(subject: _Subject) -> None:
    frontend = subject.frontend
    for example in subject.examples:
        key = frontend.key(example.model, example.work())
        if key is None:
            continue
        try:
            plain = json.loads(json.dumps(key))
        except (TypeError, ValueError) as e:
            raise FrontendFault(f"the key of {example.model!r} is not JSON: {e}") from e
        if plain != key:
            raise FrontendFault(f"the key of {example.model!r} does not survive JSON: {key!r}")
        if any(frontend.key(example.model, example.work(batch)) != key for batch in BATCHES):
            raise FrontendFault(f"the key of {example.model!r} is not the same when it is asked for again")


def _load(frontend: Frontend, example: Example, batch: int) -> Graph:
    """The graph at a batch size; whatever breaks is the frontend's fault."""
    try:
        graphs = frontend.load(example.model, example.work(batch))
    except Exception as e:
        raise FrontendFault(f"{example.model!r} at batch {batch} raised {type(e).__name__}: {first_line(e)}") from e
    if not isinstance(graphs, list) or not all(isinstance(g, Graph) for g in graphs):
        raise FrontendFault(f"load({example.model!r}) gave {type(graphs).__name__} instead of a list of graphs")
    for graph in graphs:
        try:
            validate(graph)
        except ForerunError as e:
            raise FrontendFault(str(e)) from e
        if Graph.from_dict(json.loads(json.dumps(graph.to_dict()))).content_hash() != graph.content_hash():
            raise FrontendFault(f"the graph of {example.model!r} is another one after it was written down and read")
    for graph in graphs:
        if graph.serves(batch):
            return graph.at(batch)
    raise FrontendFault(f"load({example.model!r}) gave no graph that serves batch {batch}")


def _valid_graphs(subject: _Subject) -> None:
    for number, example in enumerate(subject.examples):
        if not subject.graph(number, 1).ops:
            raise FrontendFault(f"the graph of {example.model!r} has no ops")


def _same_network(subject: _Subject) -> None:
    for number, example in enumerate(subject.examples):
        graph = with_hidden_ops(subject.graph(number, 1))
        parameters, flops = example.parameters, example.flops
        if example.same_as is not None:
            settings = example.settings if example.same_settings is None else example.same_settings
            other = load_graph(Workload(example.same_as, **settings))
            parameters, flops = other.parameters, totals(other).flops
        if parameters is not None and graph.parameters != parameters:
            raise FrontendFault(f"{example.model!r} has {graph.parameters:,} parameters instead of {parameters:,}")
        if flops is not None and abs(totals(graph).flops - flops) > TOLERANCE * flops:
            raise FrontendFault(f"{example.model!r} has {totals(graph).flops:,.0f} FLOPs instead of {flops:,.0f}")


def _batches(subject: _Subject) -> None:
    for number, example in enumerate(subject.examples):
        one, two, eight = (totals(subject.graph(number, batch)).flops for batch in BATCHES)
        # Every dimension is affine in the batch, so six samples more cost six times what one more does.
        if two <= one or abs((eight - two) - 6 * (two - one)) > TOLERANCE * eight:
            raise FrontendFault(
                f"{example.model!r} has {one:,.0f}, {two:,.0f} and {eight:,.0f} FLOPs at batch 1, 2 and 8, which is "
                "no straight line"
            )


def _refuses_junk(subject: _Subject) -> None:
    """A file with the frontend's suffix and nothing in it that the frontend could know, and one that is not there."""
    with tempfile.TemporaryDirectory(prefix="forerun-") as folder:
        for suffix in subject.frontend.suffixes:
            junk, missing = Path(folder) / f"junk{suffix}", Path(folder) / f"missing{suffix}"
            junk.write_bytes(b"no model at all\n" * 50)
            for path in (junk, missing):
                if subject.frontend.matches(path):
                    _refuses(subject.frontend, path)


def _refuses(frontend: Frontend, path: Path) -> None:
    try:
        frontend.load(path, Workload(path))
    except ForerunError as e:
        if "\n" in str(e) or not str(e):
            raise FrontendFault(f"{path.name} is refused with more or less than one sentence: {str(e)!r}") from e
    except Exception as e:
        raise FrontendFault(f"{path.name} raised {type(e).__name__} instead of a ForerunError: {first_line(e)}") from e
    else:
        raise FrontendFault(f"{path.name}, which holds no model, was not refused")
