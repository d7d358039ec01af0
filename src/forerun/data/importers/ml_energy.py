"""The ML.ENERGY leaderboard: energy and speed of language models in vLLM, and of diffusion models, on A100 and H100.

Language models (serving) answer a stream of requests with at most `batch` of them at once: `energy_j` is that of one
request over all GPUs, `tpot_ms` the mean, throughput the tokens that the whole instance generates; the lengths of the
prompts are not said, `tokens_out` is the rounded mean. Diffusion models (inference): `latency_ms` and `energy_j` are
those of one batch. Precision is not said.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers import Loaded
from forerun.data.importers._language import as_json, families
from forerun.data.importers._naming import device_ids

DATASET = "ml_energy"
ABOUT = "energy per request, time per token and throughput of 42 language, vision-language and diffusion models"
LICENCE = "Apache-2.0"
SOURCE = "github.com/ml-energy/leaderboard-v2 @ c3af7f31e231a2a7021c5f8e2a54dd712d02e6e2"


def load(folder: Path) -> Loaded:
    frame = pd.read_parquet(folder / "configs.parquet")
    task = frame["path"].str.split("/").str[:2].str.join("/")  # diffusion/text-to-image, llm_text_generation/chat …
    diffusion = task.str.startswith("diffusion/")
    unit = frame["Energy/image (J)"].fillna(frame["Energy/video (J)"])  # one picture or one film
    notes = pd.DataFrame({
        "average_batch": frame["Avg BS (reqs)"], "average_tokens_out": frame["Avg Output Tokens"],
        "energy_of": diffusion.map({True: "batch", False: "request"}),
        "denoising_steps": frame["Denoising steps"], "frames": frame["Frames"],
    })  # fmt: skip
    rows = pd.DataFrame({
        "protocol": f"{DATASET}/" + task, "device": device_ids(frame["GPU"]), "device_said": frame["GPU"],
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
    return Loaded({"models": rows})
