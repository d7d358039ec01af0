"""The ML.ENERGY leaderboard: energy and speed of language models in vLLM, and of diffusion models, on A100 and H100.

Language models (serving) answer a stream of requests with at most `batch` of them at once: `energy_j` is that of one
request over all GPUs, `tpot_ms` the mean, throughput the tokens that the whole instance generates; the lengths of the
prompts are not published, `tokens_out` is the rounded mean. Diffusion models (inference): `latency_ms` and `energy_j`
are those of one batch. Precision is not published.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from forerun.data.importers._files import missing, roots
from forerun.data.importers._language import as_json, families
from forerun.data.importers._naming import device_ids
from forerun.data.importers.base import Importer, Loaded

DATASET = "ml_energy"
_NUMBERS = [
    "TP", "PP", "Energy/req (J)", "Avg TPOT (s)", "Token tput (tok/s)", "Avg Output Tokens", "Avg BS (reqs)",
    "Max BS (reqs)", "Energy/video (J)", "Batch latency (s)", "Batch size", "Denoising steps", "Frames",
    "Energy/image (J)",
]  # fmt: skip


class MlEnergyImporter(Importer):
    """Serving runs and calls of diffusion models; not used in training."""

    name = DATASET
    about = "energy per request, time per token and throughput of 42 language, vision-language and diffusion models"
    licence = "Apache-2.0"
    source = "https://github.com/ml-energy/leaderboard-v2"
    commit = "c3af7f31e231a2a7021c5f8e2a54dd712d02e6e2"

    def load(self, folder: Path) -> Loaded:
        copy = folder / "configs.parquet"
        return Loaded({"models": _rows(pd.read_parquet(copy) if copy.exists() else _read(folder))})


def _read(folder: Path) -> pd.DataFrame:
    """data/TASK/SUBTASK/GPU/…/bs64+tp1+pp1.json: one run each."""
    rows = []
    for place in roots(folder, "data"):
        for path in sorted(place.glob("*/*/*/**/*.json")):
            run = json.loads(path.read_text())
            if isinstance(run, dict) and "Model" in run and "GPU" in run:
                rows.append(run | {"path": path.relative_to(place).as_posix()})
        if rows:
            frame = pd.DataFrame(rows).reindex(columns=["Model", "GPU", *_NUMBERS, "path"])
            return frame.astype(dict.fromkeys(_NUMBERS, "float64"))
    raise missing("data/*/*/*/*.json", "configs.parquet")


def _rows(frame: pd.DataFrame) -> pd.DataFrame:
    task = frame["path"].str.split("/").str[:2].str.join("/")  # diffusion/text-to-image, llm_text_generation/chat …
    diffusion = task.str.startswith("diffusion/")
    unit = frame["Energy/image (J)"].fillna(frame["Energy/video (J)"])  # one image or one video
    notes = pd.DataFrame({
        "average_batch": frame["Avg BS (reqs)"], "average_tokens_out": frame["Avg Output Tokens"],
        "energy_of": diffusion.map({True: "batch", False: "request"}),
        "denoising_steps": frame["Denoising steps"], "frames": frame["Frames"],
    })  # fmt: skip
    return pd.DataFrame({
        "protocol": f"{DATASET}/" + task, "device": device_ids(frame["GPU"]), "device_reported": frame["GPU"],
        # The diffusion benchmark runs on one GPU.
        "devices": (frame["TP"] * frame["PP"]).where(~diffusion, 1),
        "parallel": as_json({"tp": frame["TP"], "pp": frame["PP"]}),
        "model": frame["Model"], "source": diffusion.map({True: "diffusers", False: "hf"}),
        "family": families(frame["Model"]), "mode": diffusion.map({True: "inference", False: "serving"}),
        "runtime": diffusion.map({True: "diffusers", False: "vllm"}),
        "batch": frame["Batch size"].fillna(frame["Max BS (reqs)"]), "tokens_out": frame["Avg Output Tokens"].round(),
        "latency_ms": frame["Batch latency (s)"] * 1e3, "tpot_ms": frame["Avg TPOT (s)"] * 1e3,
        "throughput": frame["Token tput (tok/s)"],
        "throughput_unit": diffusion.map({True: None, False: "output tokens/s"}),
        "energy_j": frame["Energy/req (J)"].fillna(unit * frame["Batch size"]), "extra": as_json(notes),
    })  # fmt: skip
