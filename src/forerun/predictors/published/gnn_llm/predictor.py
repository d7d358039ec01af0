"""The predictor gnn-llm: its settings, its three stages in order, what it answers, and what of it is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from forerun._util.extras import require
from forerun.device import Device
from forerun.errors import ArgumentError, ForerunError, did_you_mean
from forerun.graph.description import Description, describe
from forerun.graph.profile import Profile
from forerun.predictors.hold_out import HoldOut
from forerun.predictors.published.gnn.arrays import STATIC
from forerun.predictors.published.gnn_llm import nodes, prompts
from forerun.predictors.published.gnn_llm.nodes import Nodes
from forerun.predictors.published.gnn_llm.prompts import PROMPTING, SUMMARISE
from forerun.predictors.published.whole_model.base import WholeModelPredictor
from forerun.predictors.saved import read_description
from forerun.workload import Workload

if TYPE_CHECKING:
    from forerun.predictors.cases import Cases
    from forerun.predictors.published.gnn_llm.joined import GraphLanguageModel
    from forerun.predictors.published.gnn_llm.language import Language
    from forerun.predictors.published.gnn_llm.stages import Item, Schedule

#: What `fit` does: one stage after the graph network and adapters of `start`, or all of them.
STAGES = ("all", "mae", "text", "performance")
#: How many measured calls of each device are kept as examples for few-shot prompts.
SHOTS = 3
#: Prompts that the language model answers at a time.
_AT_ONCE = {"cpu": 64, "cuda": 512}


class GnnLlmPredictor(WholeModelPredictor):
    """A graph network and a language model, of several devices.

    `stage` is what is fitted: all, or one stage that goes on from the folder `start`. `lm` is smollm2, small (trained
    here, as a control) or the folder of a causal language model; `rank` is that of its adapters, 0 trains all of it.
    `graphs` is a file of graphs without measurements for the first stage (`nodes.write`), which else has those of the
    rows. `steps` sets the steps of every stage, which else are `mae_steps`, `text_steps` and `performance_steps`.
    `prompting` is plain, few-shot (after measured examples of the device) or chain-of-thought (after its own summary).
    """

    name = "gnn-llm"
    modes = ("inference", "training", "prefill", "decode")
    sees_devices = True
    hold_out: ClassVar[HoldOut] = HoldOut(splits=("family",), folds=2, keeps_all_columns=False)
    columns = (*STATIC, "op_kinds")
    mark_: str  # of the language model that the adapters belong to
    tokenizer_: str  # of a language model that was trained here

    def __init__(
        self, stage: str = "all", lm: str = "smollm2", width: int = 256, layers: int = 5, soft_tokens: int = 4,
        rank: int = 16, mask_rate: float = 0.5, graphs: str | None = None, start: str | None = None,
        prompting: str = "plain", mae_steps: int = 4000, text_steps: int = 3000, performance_steps: int = 8000,
        batch_size: int = 64, language_rate: float = 1e-4, graph_rate: float = 1e-3, steps: int | None = None,
        small: dict[str, int] | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.stage, self.lm, self.width, self.layers, self.soft_tokens = stage, lm, width, layers, soft_tokens
        self.rank, self.mask_rate, self.graphs, self.start, self.prompting = rank, mask_rate, graphs, start, prompting
        self.mae_steps, self.text_steps, self.performance_steps = mae_steps, text_steps, performance_steps
        self.batch_size, self.language_rate, self.graph_rate = batch_size, language_rate, graph_rate
        self.steps, self.small, self.seed = steps, small, seed

    @property
    def predicts(self) -> bool:
        return self.stage in ("all", "performance")

    # ------------------------------------------------------------------------------------------- learning

    def learn(self, cases: Cases) -> None:
        known = [self._known_case(cases, place) for place in range(len(cases))]
        graphs, texts = [one for one, _ in known], [of.text() for _, of in known]
        asked = self._asked(cases)
        self.learn_items(graphs, texts, asked)

    def learn_items(
        self, graphs: Sequence[Nodes], texts: Sequence[str], asked: Sequence[Item], *,
        progress: Callable[[str, int, float], None] | None = None,
    ) -> None:  # fmt: skip
        """Trains on graphs, their summaries, and questions about them with measured answers; sets learned
        attributes."""
        from forerun.predictors.published.gnn_llm.stages import Item, learn

        self._check()
        doing = STAGES[1:] if self.stage == "all" else (self.stage,)
        self.losses_: dict[str, list[float]] = {}

        def shown(stage: str) -> Callable[[int, float], None]:
            return lambda step, loss: None if progress is None else progress(stage, step, loss)

        before = type(self).load(Path(self.start)) if self.start else None
        model = self._begun(before, texts, asked)
        if "mae" in doing:
            self.losses_["mae"] = self.pretrain(model, graphs, shown("mae"))
        for stage in doing:
            if stage == "mae":
                continue
            items = list(asked)
            if stage == "text":
                items = [Item(SUMMARISE, text, (place,)) for place, text in enumerate(texts)]
            course = learn(model, graphs, items, self.schedule(stage), progress=shown(stage))
            self.losses_[stage] = [round(loss, 5) for loss in course.losses]
        self.keep(model)
        self.keep_shots(model, graphs, asked)

    def schedule(self, stage: str) -> Schedule:
        """How a stage is trained, with the published rates."""
        from forerun.predictors.published.gnn_llm.stages import Schedule

        count = {"text": self.text_steps, "performance": self.performance_steps}[stage]
        return Schedule(
            self.steps or count, self.batch_size, self.language_rate, self.graph_rate, stage == "text", seed=self.seed
        )

    def check_parameters(self) -> None:
        from forerun.predictors.published.gnn_llm import language

        self._check()
        require("the predictor gnn-llm", "torch_geometric")
        if self.lm != language.SMALL:
            language.check(self.lm, adapters=self.rank > 0)
        if self.start is not None:
            read_description(Path(self.start))

    def _check(self) -> None:
        for name, value, able in (("stage", self.stage, STAGES), ("prompting", self.prompting, PROMPTING)):
            if value not in able:
                raise ArgumentError(f"{{}} is {', '.join(able)}, got {value!r}.{did_you_mean(str(value), able)}", name)

    def _begun(
        self, before: GnnLlmPredictor | None, texts: Sequence[str], asked: Sequence[Item]
    ) -> GraphLanguageModel:  # fmt: skip
        """The model as `start` left it, or a new one."""
        if before is not None:
            for name in ("width", "layers", "soft_tokens", "rank", "lm"):
                there, here = getattr(before, name), getattr(self, name)
                if there != here:
                    raise ForerunError(f"{self.start} was fitted with {name} {there}, not {here}")
            self.mark_ = before.mark_
            if "tokenizer_" in vars(before):
                self.tokenizer_ = before.tokenizer_
            return before.model
        return self.new_model([*texts, *(f"{item.prompt}{item.answer}" for item in asked)])

    def new_model(self, corpus: Sequence[str] = ()) -> GraphLanguageModel:
        """The model before any training; a small language model has a tokenizer of the corpus."""
        from forerun.predictors.published.gnn_llm import language

        if self.lm == language.SMALL:
            found = language.small(sorted(set(corpus)), self.small)
            self.tokenizer_ = found.tokenizer.backend_tokenizer.to_str()
        else:
            found = language.load(self.lm)
        return self._joined(found)

    def _joined(self, found: Language) -> GraphLanguageModel:
        import torch

        from forerun.predictors.published.gnn.training import where_it_runs
        from forerun.predictors.published.gnn_llm import language
        from forerun.predictors.published.gnn_llm.joined import GraphLanguageModel
        from forerun.predictors.published.gnn_llm.mae import GraphEncoder

        self.mark_ = "" if self.lm == language.SMALL else found.mark
        torch.manual_seed(self.seed)
        adapted = language.with_adapters(found, 0 if self.lm == language.SMALL else self.rank)
        return GraphLanguageModel(GraphEncoder(self.width, self.layers), adapted, self.soft_tokens).to(where_it_runs())

    def pretrain(
        self, model: GraphLanguageModel, graphs: Sequence[Nodes], progress: Callable[[int, float], None]
    ) -> list[float]:  # fmt: skip
        from forerun.predictors.published.gnn_llm.mae import MaeSettings, pretrain

        unlabelled = nodes.read(Path(self.graphs)) if self.graphs else graphs
        device = str(model.device)
        losses = pretrain(
            model.encoder, unlabelled, steps=self.steps or self.mae_steps, settings=MaeSettings(self.mask_rate),
            seed=self.seed, device=device, progress=progress,
        )  # fmt: skip
        model.to(device)
        return [round(loss, 5) for loss in losses[:: max(1, len(losses) // 500)]]

    def keep(self, model: GraphLanguageModel) -> None:
        """Takes what a model learned as learned attributes; the model itself is rounded as they are."""
        from forerun.predictors.published.gnn.predictor import kept_weights
        from forerun.predictors.published.gnn_llm import language

        device = model.device
        model.cpu().eval()
        self.encoder_ = kept_weights(model.encoder)
        self.projection_ = kept_weights(model.projection)
        self.adapter_ = language.kept(model.language)
        self._model = model.to(device)

    def keep_shots(self, model: GraphLanguageModel, graphs: Sequence[Nodes], asked: Sequence[Item]) -> None:
        """A few measured calls of each device and quantity, drawn by the seed, with the vectors of their graphs."""
        from forerun.predictors.published.gnn_llm.mae import vectors_of

        groups: dict[str, list[Item]] = {}
        for place in np.random.default_rng(self.seed).permutation(len(asked)).tolist():
            group = groups.setdefault(_shot_key(asked[place].prompt), [])
            if len(group) < SHOTS:
                group.append(asked[place])
        chosen = [item for group in groups.values() for item in group if len(item.graphs) == 1]
        self.shots_ = [[item.prompt, item.answer] for item in chosen]
        known = [graphs[item.graphs[0]] for item in chosen]
        if known:
            found = vectors_of(model.encoder, known, str(model.device))
            self.shot_vectors_ = found.cpu().numpy().astype(np.float32)

    # ------------------------------------------------------------------------------------------ answering

    @cached_property
    def model(self) -> GraphLanguageModel:
        """The fitted model."""
        import torch

        from forerun.predictors.published.gnn.networks import unflatten
        from forerun.predictors.published.gnn_llm import language

        if "_model" in vars(self):
            return self._model
        if "encoder_" not in vars(self):
            raise ForerunError(
                "the predictor gnn-llm was not fitted: run forerun train gnn-llm --stage all --lm smollm2 --out FOLDER"
            )
        if self.lm == language.SMALL:
            found = language.rebuilt(self.tokenizer_, {**language.SMALL_SIZES, **(self.small or {})})
            kept_mark = self.mark_
        else:
            kept_mark, found = self.mark_, language.load(self.lm)
            if found.mark != kept_mark:
                raise ForerunError(
                    f"the adapter was fitted to the language model {kept_mark}, and {self.lm} is {found.mark}"
                )
        model = self._joined(found)
        self.mark_ = kept_mark
        try:
            unflatten(model.encoder, torch.from_numpy(self.encoder_.astype(np.float32)))
            unflatten(model.projection, torch.from_numpy(self.projection_.astype(np.float32)))
        except ValueError as error:
            raise ForerunError(f"the weights of gnn-llm are of another version: {error}") from error
        language.put_back(model.language, self.adapter_)
        model.eval()
        return model

    def values_of_cases(self, cases: Cases) -> dict[str, np.ndarray]:
        graphs = [self._known_case(cases, place)[0] for place in range(len(cases))]
        rows = cases.rows.to_dict("records")
        asked = [(target, row["device"], prompts.question(target, row["device"], row)) for target in self.targets
                 for row in rows]  # fmt: skip
        found = self.numbers(graphs * len(self.targets), [prompt for _, _, prompt in asked])
        return dict(zip(self.targets, np.split(found, len(self.targets)), strict=True))

    def values_of_question(
        self, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> dict[str, np.ndarray]:
        able = [place for place, device in enumerate(devices) if self.problem_of(device) is None]
        known = [known_graph(profile, place)[0] for place in range(len(profile.batches))]
        cells = [(target, at, place) for target in self.targets for at in range(len(known)) for place in able]
        asked = [
            prompts.of_workload(target, devices[place].id, workload, int(profile.batches[at]))
            for target, at, place in cells
        ]
        texts = self.texts([known[at] for _, at, _ in cells], asked)
        out = {target: np.full((len(known), len(devices)), np.nan) for target in self.targets}
        for (target, at, place), text in zip(cells, texts, strict=True):
            out[target][at, place] = _value(text)
        if cells and np.isnan(out["latency_ms"]).all():
            raise ForerunError(
                f"gnn-llm left the latency of {profile.graph.name} unanswered: it said {texts[0].strip()[:60]!r}, "
                "which is no number"
            )
        return out

    def numbers(self, graphs: Sequence[Nodes], asked: Sequence[str]) -> np.ndarray:
        """The numbers that questions are answered with; NaN where the answer is none."""
        return np.array([_value(text) for text in self.texts(graphs, asked)])

    def texts(self, graphs: Sequence[Nodes], asked: Sequence[str]) -> list[str]:
        """The answers to questions, each about one graph, as the language model gives them."""
        import torch

        from forerun.predictors.published.gnn_llm.mae import vectors_of

        self._check()
        model = self.model
        distinct = list({id(one): one for one in graphs}.values())
        first = {id(one): place for place, one in enumerate(distinct)}
        vectors = vectors_of(model.encoder, distinct, str(model.device)) if distinct else torch.zeros(0)
        out: list[str] = []
        many = _AT_ONCE.get(model.device.type, 64)
        for start in range(0, len(asked), many):
            part = range(start, min(start + many, len(asked)))
            own = vectors[[first[id(graphs[place])] for place in part]]
            given, joined = self._put([asked[place] for place in part], own)
            out += model.answers(given, joined, prompts.ANSWER_TOKENS)
        return out

    def _put(self, asked: list[str], own: Any) -> tuple[list[str], Any]:
        """Questions as `prompting` has them, with the vectors of all graphs that stand in them."""
        import torch

        if self.prompting == "chain-of-thought":
            said = self.model.answers([SUMMARISE] * len(asked), own, prompts.SUMMARY_TOKENS)
            return [prompts.after_thought(one, text) for one, text in zip(asked, said, strict=True)], own
        if self.prompting == "plain":
            return asked, own[[place for place, one in enumerate(asked) if prompts.GRAPH in one]]
        given, vectors = [], []
        for one, vector in zip(asked, own, strict=True):
            places = [at for at, (prompt, _) in enumerate(self.shots_) if _shot_key(prompt) == _shot_key(one)]
            given.append(prompts.few_shot(one, [tuple(self.shots_[at]) for at in places]))  # type: ignore[misc]
            vectors += [*torch.from_numpy(self.shot_vectors_[places]).to(own.device), vector]
        return given, torch.stack(vectors)

    def says(self, profile: Profile) -> str | None:
        from forerun.predictors.published.gnn_llm.mae import vectors_of

        own = vectors_of(self.model.encoder, [known_graph(profile, 0)[0]], str(self.model.device))
        return str(self.model.answers([SUMMARISE], own, prompts.SUMMARY_TOKENS)[0])

    def problem_of(self, device: Device) -> str | None:
        if device.id in self.devices_:
            return None
        return (
            f"the predictor {self.name} knows {', '.join(self.devices_)} and no other device, which are names to it: "
            f"fit it to some rows of {device.id} (forerun train {self.name})"
        )

    # --------------------------------------------------------------------------------------------- graphs

    def _known_case(self, cases: Cases, place: int) -> tuple[Nodes, Description]:
        """The graph of a case for the network and in words, made once."""
        key = f"{self.name}/{cases.rows['case_key'].iloc[place]}"
        if key not in cases.made:
            cases.made[key] = known_graph(cases.profile(place), 0)
        return cases.made[key]

    def _asked(self, cases: Cases) -> list[Item]:
        """A question for every measured quantity of every case."""
        from forerun.predictors.published.gnn_llm.stages import Item

        out = []
        for place, row in enumerate(cases.rows.to_dict("records")):
            for target in self.targets:
                value = row.get(target)
                if value is not None and np.isfinite(value) and value > 0:
                    prompt = prompts.question(target, row["device"], row)
                    out.append(Item(prompt, prompts.number_text(float(value)), (place,)))
        return out


def known_graph(profile: Profile, place: int) -> tuple[Nodes, Description]:
    """A profile's graph at one of its batch sizes: for the network, and in words."""
    from forerun.predictors.published.gnn.predictor import graphs_at_batches

    at = replace(
        profile, batches=profile.batches[place : place + 1], flops=profile.flops[:, place : place + 1],
        bytes=profile.bytes[:, place : place + 1], macs=profile.macs[:, place : place + 1],
    )  # fmt: skip
    return nodes.of(graphs_at_batches(at)[0]), describe(at)


def _value(text: str) -> float:
    found = prompts.read_number(text)
    return np.nan if found is None else found


def _shot_key(prompt: str) -> str:
    """Which examples belong before a question: those of the same device and quantity."""
    words = prompt.removeprefix(prompts.GRAPH).strip()
    return f"{words.partition('.')[0]} / {words.rpartition('.')[2].strip()}"
