"""Published serving runs as sums over the iterations that our model says they had: what the fit and its judgement read.

Every run is one line: what was `measured` (milliseconds, or joules a token), the milliseconds of each part of its
iterations (serving/engine_model.py), how many iterations, sequences, kernels and prompts it had, and its roofline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.predictors.laws.engines import law_name
from forerun.runtimes.registry import runtimes
from forerun.serving.engine_model import PARTS, EngineModel, engine_model
from forerun.serving.iteration import Load

#: Parts that are rooflines.
_LEAST = ("gemm", "moe", "moe_int4", "moe_mxfp4", "attention", "latent", "head")
#: The engine of sets that name none: Splitwise's authors profiled vLLM.
_ENGINE_OF = {"splitwise": "vllm"}
#: Sets from before the engine replayed CUDA graphs: the host launches every kernel.
_EAGER = ("splitwise",)
#: Vendors as they are written.
_MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
#: Cards of the catalogue for those that it lacks: an MI250 has 95 % of the units of an MI250X.
_CARDS = {"mi250": "mi250x"}
#: Models that are others under another name.
_SAME = {"moonshotai/Kimi-K2.5": "moonshotai/Kimi-K2-Instruct"}
#: Of lengths that are drawn between 80 and 100 % of the nominal ones, the mean.
_DRAWN = 0.9
#: Sets whose devices are held out, and not their models.
_BY_DEVICE = ("llm_inference_bench",)
#: Prompt tokens of a chat, where none are published.
_CHAT = 300.0
#: Runs whose prompts would take more than this share of the peak came with prompts from a prefix cache.
_PEAK = 0.6
#: Why runs are left out that the law of memory refuses.
NO_ROOM = "weights that leave no room for a cache"
#: Sets by name, and the importer of each.
SETS = {"serving_end_to_end": "aiconfigurator", "splitwise": "splitwise",
        "llm_inference_bench": "llm_inference_bench", "ml_energy": "ml_energy"}  # fmt: skip


class Run:
    """The sum of iterations of one run."""

    def __init__(self, model: EngineModel) -> None:
        self.model = model
        self.columns: dict[str, Any] = {}

    def add(self, load: Load, many: Any, base: Load | None = None) -> Run:
        """`many` iterations of a load, or what they take beyond those of another load."""
        for name, ms in self.model.parts_ms(load).items():
            self._sum(name, many * ms)
        beside = {
            "iterations": np.ones_like(load.decode), "sequences": load.decode + load.finished,
            "launches": np.full_like(load.decode, self.model.launches), "prefills": (load.prefill > 0) * 1.0,
        }  # fmt: skip
        for name, count in beside.items():
            self._sum(name, many * count)
        return self if base is None else self.add(base, -np.asarray(many))

    def _sum(self, name: str, values: Any) -> None:
        self.columns[name] = self.columns.get(name, 0.0) + values

    def joules(self, load: Load, many: Any) -> Run:
        for name, values in self.model.joules_by_cause(load).items():
            self._sum(name, many * values)
        return self


def _load(decode: Any, context: Any, prefill: Any = 0.0, pairs: Any = 0.0, finished: Any = 0.0) -> Load:
    def like(one: Any) -> Any:
        return np.asarray(one, dtype=float) + 0.0 * np.asarray(decode)

    return Load(like(decode), like(context), like(prefill), like(pairs), like(finished))


def _steady(model: EngineModel, rows: pd.DataFrame) -> tuple[Run, np.ndarray]:
    """A token of a closed loop: iterations that decode, and what the prompts that begin meanwhile add to them."""
    clients, prompt, new = (rows[n].to_numpy(float) for n in ("batch", "seq_len", "tokens_out"))
    prompt, new = prompt * _DRAWN, new * _DRAWN
    decode = np.minimum(np.minimum(clients, model.max_sequences), np.maximum(model.kv_tokens / (prompt + new), 1.0))
    alone = _load(decode, decode * (prompt + new / 2))
    chunk = np.minimum(prompt, model.max_tokens)
    chunks = prompt / chunk
    mixed = _load(decode, alone.context, chunk, prompt * (prompt + 1) / 2 / chunks, 1 / chunks)
    run = Run(model).add(alone, 1.0).add(mixed, decode / new * chunks, alone)
    return run, rows["tpot_ms"].to_numpy(float)


def _prompts(model: EngineModel, rows: pd.DataFrame) -> tuple[Run, np.ndarray]:
    batch, prompt = (rows[n].to_numpy(float) for n in ("batch", "seq_len"))
    load = _load(0.0 * batch, 0.0 * batch, batch * prompt, batch * prompt * (prompt + 1) / 2, batch)
    return Run(model).add(load, 1.0), rows["ttft_ms"].to_numpy(float)


def _tokens(model: EngineModel, rows: pd.DataFrame) -> tuple[Run, np.ndarray]:
    batch, prompt = (rows[n].to_numpy(float) for n in ("batch", "seq_len"))
    load = _load(batch, batch * (prompt + rows["tokens_out"].fillna(128).to_numpy(float) / 2))
    return Run(model).add(load, 1.0), rows["tpot_ms"].to_numpy(float)


def _batches(model: EngineModel, rows: pd.DataFrame) -> tuple[Run, np.ndarray]:
    """A batch of prompts with answers as long as they are; what the cache cannot hold follows in turns."""
    batch, length = (rows[n].to_numpy(float) for n in ("batch", "seq_len"))
    new = rows["tokens_out"].to_numpy(float)
    at_once = np.minimum(batch, np.maximum(model.kv_tokens / (length + new), 1.0))
    turns = batch / at_once
    chunk = np.minimum(batch * length, model.max_tokens)
    count = batch * length / chunk
    prompts = _load(0.0 * batch, 0.0 * batch, chunk, batch * length * (length + 1) / 2 / count, batch / count)
    run = Run(model).add(prompts, count).add(_load(at_once, at_once * (length + new / 2)), turns * new)
    return run, rows["latency_ms"].to_numpy(float)


def _energy(model: EngineModel, rows: pd.DataFrame) -> tuple[Run, np.ndarray]:
    """Joules of a token, those of its share of the prompt among them."""
    batch, new = rows["average_batch"].to_numpy(float), np.maximum(rows["tokens_out"].to_numpy(float), 1.0)
    alone = _load(batch, batch * (_CHAT + new / 2))
    prompt = _load(0.0 * batch, 0.0 * batch, _CHAT, _CHAT * (_CHAT + 1) / 2, 1.0)
    run = Run(model).add(alone, 1.0).joules(alone, 1 / batch).joules(prompt, 1 / new)
    return run, (rows["energy_j"] / new).to_numpy(float)


def runs(store: Store, name: str) -> tuple[pd.DataFrame, dict[str, int]]:
    """The runs of a set as sums over iterations, and the number of runs that were left out by reason."""
    rows = store.query(
        f"select * from models where dataset = '{SETS[name]}' and mode = 'serving' and status = 'ok' order by row_id"
    )
    if rows.empty:
        raise ForerunError(f"the store has no serving runs of {name}: forerun data import {SETS[name]} FOLDER")
    layout = rows["parallel"].map(lambda text: json.loads(text) if isinstance(text, str) else {})
    for axis in ("tp", "pp", "dp", "ep", "moe_tp"):
        rows[axis] = layout.map(lambda one, axis=axis: int(one.get(axis) or 1))
    engines = {word: run.name for run in runtimes() if run.engine for word in (run.name, *run.also_called)}
    rows["engine"] = rows["runtime"].map(engines).fillna(_ENGINE_OF.get(name, np.nan))
    rows["device"] = rows["device"].fillna("").replace(_CARDS)
    left: dict[str, int] = {}
    for reason, bad in _left_out(name, rows):
        left[reason] = int((bad & rows["keep"]).sum()) if "keep" in rows else int(bad.sum())
        rows["keep"] = rows.get("keep", True) & ~bad
    rows = rows[rows["keep"]].reset_index(drop=True)
    parts = [part for part in _of_models(name, rows, left) if len(part)]
    found = pd.concat(parts, ignore_index=True)
    if name == "serving_end_to_end":
        cached = found["peak_share"] > _PEAK
        left["prompts from a prefix cache: else more than 60 % of the peak"] = int(cached.sum())
        found = found[~cached].reset_index(drop=True)
    return found, {reason: count for reason, count in left.items() if count}


def _left_out(name: str, rows: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """Why runs are left out, and which."""
    yield "no engine that is answered", rows["engine"].isna()
    yield "no device of the catalogue", rows["device"].eq("")
    yield "pipeline stages", rows["pp"].gt(1)
    if name == "serving_end_to_end":
        yield (
            "prefill and decode on different devices",
            rows["protocol"].ne("aiconfigurator/agg") | rows["tpot_ms"].isna(),
        )
        several = rows["dp"].gt(1) | (rows["ep"].gt(1) | rows["moe_tp"].gt(1)) & (rows["moe_tp"] * rows["ep"]).gt(
            rows["tp"]
        )
        yield "attention by data parallelism", several
        yield "most of a request is queueing", rows["ttft_ms"] > rows["tokens_out"] * rows["tpot_ms"]
    if name == "llm_inference_bench":
        short = rows["extra"].str.contains("start-up", na=False) | rows["latency_ms"].isna() | rows["tokens_out"].lt(16)
        yield "start-up is in it, or one token alone", short
    if name == "ml_energy":
        yield "text alone is answered", ~rows["protocol"].str.contains("ml_energy/llm")


def _of_models(name: str, rows: pd.DataFrame, left: dict[str, int]) -> Iterator[pd.DataFrame]:
    targets: dict[str, list[tuple[str, Callable[..., tuple[Run, np.ndarray]]]]] = {
        "serving_end_to_end": [("token time", _steady)],
        "splitwise": [("prompt time", _prompts), ("token time", _tokens)],
        "llm_inference_bench": [("throughput", _batches)], "ml_energy": [("energy per token", _energy)],
    }  # fmt: skip
    if name == "ml_energy":
        rows["average_batch"] = rows["extra"].map(lambda text: json.loads(text).get("average_batch"))
    tp = rows["tp"] if name not in ("llm_inference_bench",) else rows["devices"].fillna(1).astype(int)
    keys = [rows["model"], rows["device"], rows["engine"], rows["dtype"].fillna(""), tp, rows["ep"]]
    makers = {load_device(one).maker for one in rows["device"].unique()}
    for key, own in rows.groupby(keys, dropna=False):
        name_of_model, card, engine, dtype = (str(word) for word in key[:4])
        model = _model(name_of_model, card, engine, dtype, int(key[4]), int(key[5]))
        if isinstance(model, str):
            left[model] = left.get(model, 0) + len(own)
            continue
        for target, make in targets[name]:
            run, measured = make(model, own)
            line = own[["model", "device", "engine", "batch", "seq_len", "tokens_out"]].assign(
                set=name,
                target=f"{target}, {_MAKERS.get(model.device.maker or '', 'others')}" if len(makers) > 1 else target,
                unit=own["device"] if name in _BY_DEVICE else own["family"].fillna(own["model"]),
                tp=int(key[4]),
                ttft_ms=own["ttft_ms"].astype(float),
                ttft_roofline=_least_ttft_ms(model, own["seq_len"], int(key[4])),
                replica=[model] * len(own),
                measured=measured,
                **run.columns,
            )
            line["engine"] = law_name(str(key[2]), model.device)
            line["eager"] = line["launches"] * (name in _EAGER)
            line["roofline"] = line[list(_LEAST)].sum(axis=1)
            if target == "energy per token":  # at the power limit
                watts = model.devices * model.watts["limit_w"]
                line["roofline"] *= watts / 1e3 / line["sequences"]
            rate = own["batch"] / (own["ttft_ms"] + own["tokens_out"] * own["tpot_ms"]) * 1e3
            line["peak_share"] = rate * line["ttft_roofline"] / 1e3
            yield line[np.isfinite(line["measured"]) & (line["measured"] > 0)]


def _least_ttft_ms(model: EngineModel, tokens: pd.Series, tp: int) -> pd.Series:
    """The matmuls of a prompt at the peak of the devices."""
    peak = (model.device.peak("fp8") or model.device.peak("fp16") or 1.0) * 1e12 * tp
    return tokens * 2 * model.active_parameters / peak * 1e3


def _model(name: str, device: str, engine: str, dtype: str, tp: int, ep: int) -> EngineModel | str:
    """The iteration model of a run, or why there is none."""
    wanted = dtype if dtype in ("fp8", "fp16", "bf16", "int4") else None  # "fp4": as it is published
    if "gpt-oss" in name:  # published in MXFP4, whatever the run's label
        wanted = None
    try:
        model = engine_model(
            _SAME.get(name, name), device, engine, dtype=wanted,
            tp=tp, ep=ep if ep % tp == 0 else 1,
        )  # fmt: skip
    except ForerunError as error:
        text = str(error)
        return "its model is not in the catalogue" if "not" in text and name in text else text[:80]
    return model if model.kv_tokens > 0 else NO_ROOM


__all__ = ["NO_ROOM", "PARTS", "SETS", "runs"]
