"""MLPerf Training, rounds 3.1 to 5.1: time to reach the target quality, and the throughput that submitters logged.

One row per run. Runs of one system (`host`) are repeats of each other, so splits must be by host, not by row. The logs
do not state parallelism and precision. Throughput is that of the whole system in samples/s; GPT-3
logs tokens/s, and RetinaNet (also logged as `ssd`) is per device where that is the only reading that adds up.
The benchmark is in `protocol`: under llama2_70b_lora only the adapters (LoRA) are trained.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers._language import as_json, families, model_names, sources
from forerun.data.importers._naming import device_ids
from forerun.data.importers.base import Importer, Loaded, Source

DATASET = "mlperf_training"
_HOST = "https://github.com/mlcommons/training_results_"

MODELS = {
    "bert": "bert-large-uncased", "resnet": "torchvision/resnet50", "llama2_70b_lora": "meta-llama/Llama-2-70b-hf",
    "llama31_8b": "meta-llama/Llama-3.1-8B", "llama31_405b": "meta-llama/Llama-3.1-405B",
    "gnn": f"{DATASET}/rgat", "ssd": f"{DATASET}/retinanet",  # since round 2.0 the log's `ssd` is RetinaNet
}  # fmt: skip
DETECTION = ("ssd", "retinanet")
DETECTION_IMAGES, FEWEST_EPOCHS = 1_170_301, 3  # OpenImages as MLPerf cuts it; RetinaNet needs four epochs and more
SAME = ["benchmark", "time_to_train_s", "final_eval", "seed"]


class MlperfTrainingImporter(Importer):
    """Training on many accelerators; not used in training.

    The submissions are thousands of log files. The importer reads a table of them, runs.parquet.
    """

    name = DATASET
    about = "time to train and throughput of 8,792 runs of MLPerf Training on 2 to 11,616 accelerators"
    prepared = "one Parquet table of all runs (runs.parquet)"
    licence = "Apache-2.0"
    source = f"{_HOST}v3.1"
    commit = "d06288b2bd675a9d88e0e6181f5bb5626b71ec19"
    more_sources = (
        Source(f"{_HOST}v4.0", "6fe954378efe4a1a1bd665550b18ff8f26018def"),
        Source(f"{_HOST}v4.1", "b87b9e396f771345d4ef122ba33456304f15228d"),
        Source(f"{_HOST}v5.0", "0fdc28f013256aea84fa36fdaf1e0fa46094b18c"),
        Source(f"{_HOST}v5.1", "441d65f4445cd59687466533fd9f55399136e7a4"),
    )

    def load(self, folder: Path) -> Loaded:
        return _load(pd.read_parquet(folder / "runs.parquet"))


def _load(frame: pd.DataFrame) -> Loaded:
    loaded = Loaded({})
    frame = loaded.drop(frame, frame["status"] != "success", "did not reach the target quality")
    frame = loaded.drop(frame, frame.duplicated(SAME), "the same run, submitted again")
    cpu = frame["sys_accelerators_per_node"] == 0
    named = frame["sys_accelerator_model_name"].mask(cpu, frame["sys_host_processor_model_name"])
    model = model_names(frame["benchmark"], MODELS, DATASET)
    resnet = frame["benchmark"] == "resnet"
    division = (frame["sys_division"] == "open") | (frame["submission_division"] == "open")
    notes = pd.DataFrame({
        "submitter": frame["submitter"], "nodes": frame["sys_number_of_nodes"], "lora_rank": frame["lora_rank"],
        "grad_accum": frame["gradient_accumulation_steps"], "host_cpu": frame["sys_host_processor_model_name"],
        "interconnect": frame["sys_accelerator_interconnect"], "network": frame["sys_host_networking"],
        "final_eval": frame["final_eval"], "division": division.map({True: "open", False: None}),
    })  # fmt: skip
    throughput = frame["tracked_throughput_median"]
    loaded.tables["models"] = pd.DataFrame({
        "protocol": f"{DATASET}/" + frame["round"] + "/" + frame["benchmark"], "host": frame["system_name"],
        "case_key": frame["submitter"] + "/" + frame["system_name"],
        "device": device_ids(named), "device_reported": named,
        # Sockets per node are not published, so the number of CPUs is not known.
        "devices": (frame["sys_accelerators_per_node"] * frame["sys_number_of_nodes"]).mask(cpu),
        "model": model, "source": sources(model).mask(resnet, "torchvision"),
        "family": families(model).mask(resnet, "resnet"), "mode": "training",
        "software": as_json({"framework": frame["sys_framework"], "mlperf": frame["round"]}),
        "batch": frame["global_batch_size"], "seq_len": frame["max_sequence_length"], "repeat": frame["run"],
        "throughput": throughput, "throughput_unit": _units(frame).mask(throughput.isna()),
        "time_to_train_s": frame["time_to_train_s"], "extra": as_json(notes),
    }).reset_index(drop=True)  # fmt: skip
    return loaded


def _units(frame: pd.DataFrame) -> pd.Series:
    """The unit of a run's logged throughput."""
    epochs = frame["tracked_throughput_median"] * frame["time_to_train_s"] / DETECTION_IMAGES
    per_device = frame["benchmark"].isin(DETECTION) & (epochs < FEWEST_EPOCHS)
    units = pd.Series("samples/s", index=frame.index, dtype=object)
    return units.mask(frame["benchmark"] == "gpt3", "tokens/s").mask(per_device, "samples/s/device")
