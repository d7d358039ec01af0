"""Holes filled: each method on forty rows written by hand, a real server as language model, and fills judged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import warm
from landscape_rows import write_tables

from forerun.errors import ForerunError, MissingPackage
from forerun.landscape.clean import read_tables
from forerun.landscape.fill import METHODS, embedding, fill, reading
from forerun.landscape.fill.document import fill_part, reading_part
from forerun.landscape.fill.filled import MODEL_COLUMNS, Options
from forerun.landscape.fill.judge import judge_fills, left_for_judging
from forerun.landscape.fill.reading import judge_reading
from forerun.landscape.fill.retrieval import candidates
from forerun.landscape.fill.units import mentions, product, sentences
from forerun.landscape.schema import Tables


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The cleaned tables of the forty models."""
    return read_tables(write_tables(tmp_path_factory.mktemp("epoch")))


@pytest.fixture(scope="module")
def retrieved(tables: Tables, _own_folders: None) -> tuple[Tables, pd.DataFrame]:
    """What retrieval fills, with the real sentence model."""
    return fill(tables, "retrieval")


def value(tables: Tables, model: str, column: str) -> float:
    """One cell of the models."""
    return float(tables.models.set_index("model").at[model, column])


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("1536 TPU v4 chips for 15 days", [("chips", 1536), ("time", 360)]),
        ("trained for two weeks on 64 V100s", [("time", 336), ("chips", 64)]),
        ("60 K80 GPUs and 8xA100 80GB GPUs", [("chips", 60), ("chips", 8)]),
        ("6 FLOP / parameter / token * 36 * 10^12 tokens", [("computation", 6), ("data", 3.6e13)]),
        ("3640 petaflop/s-days, or 470 PF", [("computation", 3640e15 * 86400), ("computation", 4.7e17)]),
        ("312 TFLOPS at 40% utilization", [("speed", 3.12e14), ("share", 0.4)]),
        ("$5.576M 2024 USD = $5.39M 2023 USD", [("money", 5.576e6), ("money", 5.39e6)]),
        ("1,720,320 A100 GPU-hours", [("chip time", 1720320)]),
        ("a model with 418M params, 13B", [("parameters", 4.18e8), ("", 13e9)]),
        ("14.8 trillion diverse and high-quality tokens", [("data", 14.8e12)]),
        ("28x28 pixel images in 30-40 minutes", [("", 28), ("", 30), ("time", 40 / 60)]),
        ("216 GB of text, see https://example.org/?gid=54587040", [("other", 216)]),
        ("nothing here", []),
    ],
)
def test_quantities_of_a_sentence(sentence: str, found: list[tuple[str, float]]) -> None:
    assert [(one.kind, pytest.approx(one.value)) for one in mentions(sentence)] == found


def test_rates_and_results_are_marked() -> None:
    rate, result = mentions("$1.10/hour * 100 hours = $110")[0], mentions("$1.10/hour * 100 hours = $110")[-1]
    assert rate.per and not rate.after_equals
    assert result.after_equals and not result.per


def test_sentences_and_products() -> None:
    assert sentences("It took 3.5 days. Nothing else.\nOn 8 GPUs") == ("It took 3.5 days.", "On 8 GPUs")
    assert product("2304 * 4096") == 2304 * 4096
    assert product("2304 * 4096 tokens") is None


@pytest.mark.parametrize(
    ("word", "times", "found"),
    [("9", 100_000, 1), ("1 ", 40_000, 40_000), ("1e9", 40_000, 1), ("10^", 40_000, 1),
     ("a week ", 40_000, 40_000), ("A100 ", 40_000, 0)],
)  # fmt: skip
def test_hostile_notes_come_to_an_end(word: str, times: int, found: int) -> None:
    """In a process of its own, which is ended if it does not."""
    code = (
        "from forerun.landscape.fill.units import mentions, sentences\n"
        f"print(sum(len(mentions(one)) for one in sentences({word!r} * {times})))"
    )
    done = warm.run(["-c", code], timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == found


def test_rms_fills_every_hole(tables: Tables) -> None:
    full, filled = fill(tables, "rms")
    assert full.models[[c for c in MODEL_COLUMNS if tables.models[c].notna().any()]].notna().all().all()
    known = tables.models["training_hours"].dropna()
    one = filled[filled["column"] == "training_hours"].iloc[0]
    assert one["value"] == pytest.approx(np.sqrt((known**2).mean()))
    assert one["method"] == "rms" and "known values" in one["sentence"] and 0 <= one["confidence"] <= 1


def test_known_values_stay(tables: Tables, retrieved: tuple[Tables, pd.DataFrame]) -> None:
    for full in (fill(tables, "rms")[0], retrieved[0]):
        for column in MODEL_COLUMNS:
            known = tables.models[column].notna()
            pd.testing.assert_series_equal(full.models.loc[known, column], tables.models.loc[known, column])
    assert tables.models["training_hours"].isna().any()  # the tables that were given are not changed


@pytest.mark.parametrize("method", ["forest", "extra_trees"])
def test_trees_fill_hardware(tables: Tables, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.landscape.fill.iterative.LEAST_KNOWN", 4)
    monkeypatch.setattr("forerun.landscape.fill.iterative.TREES", 12)
    full, filled = fill(tables, method)
    assert set(filled["column"]) <= set(METHODS[method].columns["hardware"]) and len(filled)
    column = "tdp_w" if method == "forest" else "price_usd"
    known = tables.hardware[column].dropna()
    made = filled[filled["column"] == column]["value"]
    assert full.hardware[column].notna().all() and made.between(known.min(), known.max()).all()
    assert filled["confidence"].between(0, 1).all()


@pytest.mark.parametrize(
    ("model", "column", "expected"),
    [
        ("Alder-2B", "compute_flop", 6.36e20), ("Rowan-140B", "compute_flop", 4.536e24),
        ("Oak-65B", "compute_flop", 1.989e24), ("Hazel-160B", "compute_flop", 5.184e24),
        ("Dogwood-4.6B", "compute_flop", 5.2e21), ("Alder-0.51B", "training_hours", 42),
        ("Dogwood-0.2B", "training_hours", 168), ("Spruce-32B", "training_hours", 336),
        ("Kauri-36B", "training_hours", 1.05e6 / 1024), ("Hazel-160B", "batch_size", 2048 * 4096),
        ("Hazel-160B", "cost_2023_usd", 14.1e6), ("Nutmeg-1.1B", "cost_2023_usd", 1050),
    ],
)  # fmt: skip
def test_retrieval(retrieved: tuple[Tables, pd.DataFrame], model: str, column: str, expected: float) -> None:
    full, filled = retrieved
    assert value(full, model, column) == pytest.approx(expected)
    (one,) = filled[(filled["model"] == model) & (filled["column"] == column)].to_dict("records")
    assert one["method"] == "retrieval" and 0 < one["confidence"] < 1
    assert any(character.isdigit() for character in one["sentence"]) or "week" in one["sentence"]


@pytest.mark.parametrize(
    ("column", "note"),
    [
        ("compute_flop", "Maybe over 1e25 FLOP"), ("compute_flop", "Unlikely to be >1e25 FLOP given its size"),
        ("training_hours", "trained on 60k hours of English speech"), ("mfu", "we assume 30% utilization"),
        ("chips", "It fits on 8 H100 GPUs for inference."), ("cost_2023_usd", "free below $1M of revenue"),
        # Lengths of videos and audio, chip hours, data and calendar time are no training times.
        ("training_hours", "35M single-shot clips remain, with each clip averaging about 6 seconds"),
        ("training_hours", "users create videos up to 10 minutes long"),
        ("training_hours", "can generate 4-minute musical compositions"),
        ("training_hours", "We train on 30-minute audio crops"), ("training_hours", "680,000 hours = 9.3e9 words"),
        ("training_hours", "460000 hours * 3600 s * 133800000000000 FLOPS/s * 0.3 = 6.6e22"),
        ("training_hours", "About 6 million core hours were spent"), ("training_hours", "took 300 CPU days"),
        ("training_hours", "In the three months since its release, developers have trained new models"),
        ("compute_flop", "not obvious they would have trained with a budget of 1e25 FLOP"),
        ("compute_flop", "It is below 1e25 FLOP"), ("compute_flop", "This would require 5T tokens to reach 1e25 FLOP"),
        ("chips", "20.1K TPU-v3 core-days"), ("chips", "2,560 GPU Nvidia A100 80G days."),
        ("chips", "a Quadro K-6000 GPU"), ("chips", "(2.1e6 hours)*(1,979 H100 FLOP/s)"),
        ("cost_2023_usd", "the developer raised $80M"), ("batch_size", "per batch for 550k steps: 576B total tokens"),
        ("dataset_size", "Kling 2.1 video model"), ("dataset_size", "GPT-4 image inputs"),
        ("parameters", "CC BY-NC-SA 4.0 for weights"),
    ],
)  # fmt: skip
def test_what_a_note_does_not_state(column: str, note: str) -> None:
    assert candidates({"compute_notes": note, "hours_notes": note, "cost_notes": note}, column) == []


@pytest.mark.parametrize(
    ("column", "note", "value"),
    [
        ("training_hours", "trained on video data for 5 days", 120), ("training_hours", "It took 100 hours * 0.3", 100),
        ("chips", "25 days on 8 NVIDIA 2080Ti GPUs", 8), ("training_hours", "168 A100 GPU-days", 504),
        ("dataset_size", "1.5 million images", 1.5e6), ("compute_flop", "The total is 1e25 FLOP", 1e25),
    ],
)  # fmt: skip
def test_what_a_note_states(column: str, note: str, value: float) -> None:
    found = candidates({"compute_notes": note, "hours_notes": note, "chips": 8.0}, column)
    assert [one.value for one in found][:1] == [pytest.approx(value)]


def test_retrieval_leaves_what_no_note_states(retrieved: tuple[Tables, pd.DataFrame]) -> None:
    assert np.isnan(value(retrieved[0], "Pine-2.6B", "training_hours"))


def test_nearest_takes_the_base_model_first(tables: Tables) -> None:
    full, filled = fill(tables, "nearest", {"models": ("training_hours", "cost_2023_usd")})
    assert value(full, "Spruce-32B", "training_hours") == value(tables, "Spruce-29B", "training_hours")
    by_model = filled[filled["column"] == "training_hours"].set_index("model")
    assert by_model.at["Spruce-32B", "confidence"] == 0.7 and "base model" in by_model.at["Spruce-32B", "sentence"]
    others = by_model.drop("Spruce-32B")
    assert (others["confidence"] == 0.5).all() and others["sentence"].str.contains("most similar").all()


def test_several_methods_in_turn(tables: Tables) -> None:
    _, filled = fill(tables, ["retrieval", "rms"], {"models": ("training_hours",)})
    assert filled["model"].is_unique and set(filled["method"]) == {"retrieval", "rms"}


def test_an_unknown_method_and_a_folder_without_a_model(tables: Tables, tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match="Did you mean nearest"):
        fill(tables, "nearst")
    with pytest.raises(ForerunError, match=r"no modules\.json"):
        fill(tables, "nearest", options=Options(embedding=str(tmp_path)))


def test_without_the_extra(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'forerun\[landscape\]'"):
        fill(tables, "nearest")


def test_embeddings_are_kept(monkeypatch: pytest.MonkeyPatch, retrieved: tuple[Tables, pd.DataFrame]) -> None:
    first = embedding.embed(["trained for ten days", "a cat"])
    monkeypatch.setattr(embedding, "_known", {})
    monkeypatch.setattr(embedding, "_model", None)  # so that running the model again would fail
    again = embedding.embed(["trained for ten days", "a cat"])
    assert np.allclose(first, again, atol=2e-3) and np.allclose(np.linalg.norm(first, axis=1), 1, atol=1e-3)


@contextmanager
def answering(reply: Any, status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that speaks as OpenAI's does, and what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({"path": self.path, **body})
            text = reply(body) if callable(reply) else reply
            whole = (
                text if isinstance(text, bytes) else json.dumps({"choices": [{"message": {"content": text}}]}).encode()
            )
            self.send_response(status)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


HOURS = {"models": ("training_hours",)}


def test_a_language_model_is_scored_beside_the_rules(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "left_for_judging", lambda model: True)  # few of forty are

    def last(body: dict[str, Any]) -> str:
        listed = body["messages"][1]["content"].splitlines()[2:]
        return f'{{"index": {len(listed) - 1}}}'

    with answering(last) as (url, asked):
        found = judge_reading(tables, Options(llm_url=url, llm_model="last"), 10)
    whole = found.lines[-1]
    assert found.model == "last" and whole.column == "all"
    assert whole.asked == len(asked) == sum(line.asked for line in found.lines[:-1]) <= 10
    assert whole.rules > whole.language_model and whole.first == whole.unanswered == 0
    assert 0 < whole.chance < whole.asked
    with answering('{"index": 0}') as (url, _):
        same = judge_reading(tables, Options(llm_url=url), 10).lines[-1]
    assert same.language_model == same.rules == whole.rules and same.first == same.asked
    words = "\n".join(reading_part(found))
    assert "last is shown up to eight numbers" in words and f"| all | {whole.asked} |" in words
    with pytest.raises(ForerunError, match="needs its address: --llm-url"):
        judge_reading(tables, Options())


def test_a_language_model_chooses_the_sentence(tables: Tables) -> None:
    def read(body: dict[str, Any]) -> str:
        lines = body["messages"][1]["content"].splitlines()
        hours = [line.split(":")[0] for line in lines if "60 hours" in line and ": 60 in" in line]
        return f'The answer is {{"index": {hours[0]}}}.' if hours else '{"index": null}'

    with answering(read) as (url, asked):
        full, filled = fill(tables, "retrieval", HOURS, Options(llm_url=url, llm_model="small"))
    assert value(full, "Nutmeg-1.1B", "training_hours") == 60
    assert filled[["model", "method"]].to_numpy().tolist() == [["Nutmeg-1.1B", "language model"]]
    assert {one["path"] for one in asked} == {"/v1/chat/completions"} and asked[0]["model"] == "small"
    assert "Nutmeg-1.1B" in " ".join(one["messages"][1]["content"] for one in asked)


@pytest.mark.parametrize("reply", ['{"index": 99}', "no idea", "", '{"index": null}'])
def test_a_language_model_cannot_invent_a_number(tables: Tables, reply: str) -> None:
    with answering(reply) as (url, asked):
        _, filled = fill(tables, "retrieval", HOURS, Options(llm_url=url))
    assert filled.empty and asked


@pytest.mark.parametrize(
    ("reply", "status", "sentence"),
    [("", 500, "answered 500"), (b"<html>", 200, "not one of an OpenAI-compatible server"), (b"{}", 200, "not one of")],
)
def test_a_language_model_that_fails(tables: Tables, reply: Any, status: int, sentence: str) -> None:
    with answering(reply, status) as (url, _), pytest.raises(ForerunError, match=sentence):
        fill(tables, "retrieval", HOURS, Options(llm_url=url))


@pytest.mark.parametrize(
    ("url", "sentence"), [("http://127.0.0.1:9/v1", "does not respond"), ("file:///etc/passwd", "begins with http://")]
)
def test_a_language_model_that_is_not_there(tables: Tables, url: str, sentence: str) -> None:
    with pytest.raises(ForerunError, match=sentence):
        fill(tables, "retrieval", HOURS, Options(llm_url=url))


def test_fills_are_judged_on_hidden_values(tables: Tables, retrieved: tuple[Tables, pd.DataFrame]) -> None:
    shares: list[float] = []
    options = Options(progress=lambda words, share: shares.append(share) if words == "judging fills" else None)
    study = judge_fills(tables, ("rms", "nearest", "retrieval"), folds=2, options=options)
    judged = [name for name in tables.models["model"] if left_for_judging(name)]
    hours = study.of("training_hours", "retrieval")
    assert hours is not None and study.models == len(judged)
    known = tables.models[tables.models["model"].isin(judged)]["training_hours"].notna().sum()
    assert hours.hidden == known and 0 < hours.answered <= known
    rms = study.of("parameters", "rms")
    assert rms is not None and rms.answered == rms.hidden and rms.mean_decades is not None and rms.mean_decades > 0
    assert all(one.model in judged and one.sentence for one in study.examples)
    assert shares[-1] == 1.0 and set(study.seconds) == {"rms", "nearest", "retrieval"}
    lines = fill_part(study)
    assert any(line.startswith("| training_hours |") for line in lines)
    assert sum(line.count("| yes |") + line.count("| no |") for line in lines) == len(study.examples)
