"""Forty invented models and nine chips, written by hand in the columns of Epoch AI's tables."""

from __future__ import annotations

import csv
from pathlib import Path

# model | organisation | domain | published | parameters | tokens | FLOP | chip | chips | hours | MFU | 2023 USD | W
_MODELS = """
Alder-2B|Tsinghua University|Speech|2018-05-04|2e9|53e9||NVIDIA V100|32|164|0.27|3140|13400
Alder-0.51B|Google|Language|2020-06-02|510000000|16e9|4.896e19|NVIDIA V100|8|||204|
Birch-3.1B|Tsinghua University|Language|2018-05-01|3.1e9|190e9|3.534e21|NVIDIA V100|64|273|||26900
Birch-5.4B|Baltic University|Biology|2019-06-24|5.4e9|370e9|1.1988e22|NVIDIA V100|128|612||47000|53800
Cedar-0.21B|Tsinghua University|Language|2018-10-08|210000000|5.5e9|6.93e18|NVIDIA V100|8|7.13|0.27|34.2|
Cedar-18B|Hanmi Labs|Images and text|2020-03-19|18e9|310e9|3.348e22|NVIDIA V100|512|330|||215000
Dogwood-0.2B|Northlake AI|Vision|2018-07-15|200000000|3.4e9|4.08e18|NVIDIA V100|8|||12.1|3360
Dogwood-4.6B|Facebook AI|Language|2020-10-09|4.6e9|190e9||Google TPU v3|128|215||19300|
Elm-11B|Baltic University|Biology|2020-02-07|11e9|270e9|1.782e22|Google TPU v3|256|524|0.3||161000
Elm-0.21B|Facebook AI|Language|2020-07-11|210000000|1.9e9|2.394e18|Google TPU v3|8|2.18||12.2|5040
Fir-0.33B|Tsinghua University|Biology|2019-10-06|330000000|2.8e9|5.544e18|Google TPU v3|8|4.6||25.8|
Fir-0.11B|Hanmi Labs|Speech|2020-12-11|110000000|1.8e9|1.188e18|Google TPU v3|8||||5040
Ginkgo-15B|Tsinghua University|Language|2021-10-20|15e9|150e9|1.35e22|Google TPU v3|128|595|0.4|53400|80600
Ginkgo-120B|Google Brain|Language|2021-10-20|120e9|2.2e12|1.584e24|NVIDIA A100 SXM4 80 GB|8192|688||6210000|
Hazel-160B|Facebook AI|Language|2023-05-12|160e9|5.4e12||NVIDIA A100 SXM4 80 GB|16384|782|||9200000
Hazel-23B|University of Cambridge|Images and text|2021-03-02|23e9|830e9|1.1454e23|A100 80 GB|256|813||229000|143000
Ironwood-0.25B|Facebook AI|Vision|2021-10-02|250000000|7.6e9|1.14e19|NVIDIA A100 SXM4 80 GB|8||0.44|25.4|
Ironwood-2.1B|Hanmi Labs|Speech|2021-08-15|2.1e9|18e9|2.268e20|NVIDIA A100 SXM4 80 GB|8|70.1|||4480
Juniper-0.13B|Facebook AI|Vision|2021-08-07|130000000|2e9|1.56e18|NVIDIA A100 SXM4 80 GB|8|0.56||4.93|4480
Juniper-1.1B|Hanmi Labs|Biology|2023-11-05|1.1e9|83e9|5.478e20|Google TPU v4|8|210||1680|
Kauri-20B|Google Brain|Language|2023-04-26|20e9|180e9|2.16e22|Google TPU v4|128|487|0.35||60900
Kauri-36B|Tsinghua University|Language|2022-06-16|36e9|1.5e12||Google TPU v4|1024|||727000|487000
Larch-0.17B|Northlake AI|Vision|2023-12-16|170000000|16e9|1.632e19|Google TPU v4|8|4.21||33.6|
Larch-28B|University of Cambridge|Images and text|2023-12-05|28e9|440e9|7.392e22|Google TPU v4|256|634|||122000
Maple-93B|Northlake AI|Images and text|2022-11-13|93e9|1.3e12|7.254e23|Google TPU v4|4096|716|0.25|2930000|1950000
Maple-1.8B|Northlake AI|Language|2023-11-04|1.8e9|100e9|1.08e21|Google TPU v4|8|390||3120|
Nutmeg-1.1B|University of Cambridge|Language|2023-11-20|1.1e9|84e9|5.544e20|NVIDIA H100 SXM5 80GB|8||||7840
Nutmeg-8B|Google Brain|Language|2023-09-23|8e9|220e9|1.056e22|NVIDIA H100 SXM5 80GB|8|789||13900|7840
Oak-65B|Google|Language|2024-05-25|65e9|5.1e12||NVIDIA H100 SXM5 80GB|4096|426|0.32|3840000|
Oak-1.7B|University of Cambridge|Speech|2025-11-15|1.7e9|99e9|1.0098e21|NVIDIA H100 SXM5 80GB|8|107|||7840
Pine-0.18B|Hanmi Labs|Vision|2025-11-04|180000000|15e9|1.62e19|NVIDIA H100 SXM5 80GB|8|1.26||22.2|7840
Pine-2.6B|University of Cambridge|Vision|2025-08-25|2.6e9|100e9|1.56e21|NVIDIA H100 SXM5 80GB|8|||1970|
Quince-0.34B|University of Cambridge|Speech|2025-06-18|340000000|25e9|5.1e19|NVIDIA GB200|8|2.44|0.29||13400
Quince-130B|Google|Images and text|2025-08-18|130e9|1e12|7.8e23|NVIDIA GB200|512|584||1340000|860000
Rowan-19B|Tsinghua University|Language|2025-06-26|19e9|510e9|5.814e22|NVIDIA GB200|64|374||108000|
Rowan-140B|Baltic University|Images and text|2025-07-06|140e9|5.4e12||NVIDIA GB200|2048|586|||3440000
Spruce-32B|University of Cambridge|Images and text|2025-12-15|32e9|1.1e12|2.112e23|NVIDIA GB200|64||0.48|220000|108000
Spruce-29B|Google|Images and text|2025-08-09|29e9|580e9|1.0092e23|NVIDIA GB200|128|209||120000|
Teak-0.37B|Baltic University|Biology|2025-03-20|370000000|29e9|6.438e19|NVIDIA Tesla K40c|8|6.65|||7840
Teak-99B|Tsinghua and Baltic|Language|2023-09-21|99e9|1.2e12|7.128e23|H100 and A100|1024|477||1070000|1000000
"""
_SHORT = {
    "Images and text": "Multimodal,Language,Vision",
    "A100 80 GB": "NVIDIA A100 SXM4 80 GB",
    "H100 and A100": "NVIDIA H100 SXM5 80GB,NVIDIA A100",
    "Tsinghua and Baltic": "Tsinghua University,Baltic University",
}
COLUMNS = (
    "Model", "Organization", "Domain", "Publication date", "Parameters", "Training dataset size (total)",
    "Training compute (FLOP)", "Training hardware", "Hardware quantity", "Training time (hours)",
    "Hardware utilization (MFU)", "Training compute cost (2023 USD)", "Training power draw (W)",
)  # fmt: skip
_PLACES = {
    "Tsinghua University": ("Academia", "China"),
    "Baltic University": ("Academia", "Germany"),
    "University of Cambridge": ("Academia", "United Kingdom of Great Britain and Northern Ireland"),
    "Hanmi Labs": ("Industry", "Korea (Republic of)"),
    "Northlake AI": ("Industry", "United States of America"),
    "Google": ("Industry", "United States of America"),
    "Google Brain": ("Industry", "United States of America"),
    "Facebook AI": ("Industry", "United States of America"),
}
_TASKS = {
    "Language": "Language modeling", "Vision": "Image classification", "Speech": "Speech recognition",
    "Biology": "Protein folding prediction", "Multimodal": "Visual question answering",
}  # fmt: skip
#: What notes say, for the models in whose rows something is missing, and for some in which nothing is.
NOTES: dict[str, dict[str, str]] = {
    "Alder-2B": {
        "Training compute notes": "6 FLOP / parameter / token * 2 * 10^9 parameters * 53 * 10^9 tokens = 6.36e+20 FLOP"
    },
    "Alder-0.51B": {"Training time notes": "Trained for 42 hours on 8 V100 GPUs. See Table 3."},
    "Birch-3.1B": {
        "Parameters notes": "3.1B",
        "Training compute notes": "64 GPUs * 125 TFLOPS * 273 hours * 3600 sec / hour * 0.45 = 3.538e21\n"
        "From parameters and tokens: 6 * 3.1e9 * 190e9 = 3.534e21",
    },
    "Dogwood-0.2B": {"Training time notes": "The paper says that training took a week on a single node."},
    "Dogwood-4.6B": {"Training compute notes": "Counting operations gives 5.2 * 10^21 FLOP, see https://example.org/p?id=77"},
    "Elm-11B": {"Training time notes": '"pre-training took about 22 days on 256 TPU v3 chips"'},
    "Fir-0.11B": {"Training time notes": "About 3 hours per run; eight runs were made."},
    "Ginkgo-120B": {
        "Parameters notes": "The largest model has 120 billion parameters; a small one has 1.3 billion parameters.",
        "Dataset size notes": "2.2 trillion tokens after deduplication",
    },
    "Hazel-160B": {
        "Training compute notes": "6 * 160B * 5.4T = 5.184e24 FLOP",
        "Batch size notes": "2048 * 4096",
        "Compute cost notes": "16384 GPUs * 782 hours * $1.10/hour = $14.1 million",
    },
    "Kauri-36B": {"Training time notes": "1.05 million TPU-hours", "Training compute notes": "3.24e23"},
    "Nutmeg-1.1B": {
        "Training time notes": "Two and a half days (60 hours)",
        "Compute cost notes": "about $1,050 in the cloud",
    },
    "Oak-65B": {
        "Parameters notes": "65 billion parameters",
        "Training compute notes": "MFU of 32%. 6 * 65e9 * 5.1e12 = 1.989e24 FLOP",
        "Training time notes": "18 days on 4096 H100 GPUs",
    },
    "Rowan-140B": {
        "Training compute notes": "6 FLOP/token/parameter * 140e9 parameters * 5.4e12 tokens = 4.536e24 FLOP",
    },
    "Spruce-32B": {"Training time notes": '"took two weeks on 64 GB200 GPUs"', "Base model": "Spruce-29B"},
}  # fmt: skip
_NOTE_COLUMNS = (
    "Parameters notes", "Training compute notes", "Dataset size notes", "Training time notes", "Compute cost notes",
    "Batch size notes", "Base model",
)  # fmt: skip

# name | maker | type | released | USD | tensor FP16 | FP16 | FP32 | INT8 | bytes | byte/s | W | mm2 | nm | transistors
_HARDWARE = """
NVIDIA V100|NVIDIA|GPU|2017-06-21|10000|1.25e14|3.14e13|1.57e13||16e9|9e11|300|815|12|21100
Google TPU v3|Google|TPU|2018-05-08||1.23e14||||32e9|9e11|450||16|
Google TPU v4|Google|TPU|2021-05-20||2.75e14||||32e9|1.2e12|340||7|
NVIDIA A100|NVIDIA|GPU|2020-05-14|15000|3.12e14|7.8e13|1.95e13|6.24e14|40e9|1.555e12|400|826|7|54200
NVIDIA A100 SXM4 80 GB|NVIDIA|GPU|2020-11-16|18000|3.12e14|7.8e13|1.95e13|6.24e14|80e9|2.039e12|400|826|7|54200
NVIDIA H100 SXM5 80GB|NVIDIA|GPU|2022-09-20|30000|9.89e14|1.34e14|6.7e13|1.979e15|80e9|3.35e12|700|814|4|80000
NVIDIA GB200|NVIDIA|GPU|2024-11-18||2.5e15||8e13|5e15|192e9|8e12|1200||4|208000
NVIDIA Tesla T4|NVIDIA|GPU|2018-09-12|2300|6.5e13|6.5e13|8.1e12|1.3e14|16e9|3.2e11|70|545|12|13600
Sapling S1|Sapling|Other|2023-03-01||1e14||||24e9|8e11|||7|
"""
HARDWARE_COLUMNS = (
    "Hardware name", "Manufacturer", "Type", "Release date", "Release price (USD)",
    "Tensor-FP16/BF16 performance (FLOP/s)", "FP16 (half precision) performance (FLOP/s)",
    "FP32 (single precision) performance (FLOP/s)", "INT8 performance (OP/s)", "Memory (bytes)",
    "Memory bandwidth (byte/s)", "TDP (W)", "Die Size (mm^2)", "Process size (nm)", "Transistors (millions)",
)  # fmt: skip


def model_rows() -> list[dict[str, str]]:
    """The forty models in the columns of the copies of 2026."""
    rows = []
    for line in _MODELS.strip().splitlines():
        row = dict(zip(COLUMNS, (_SHORT.get(cell, cell) for cell in line.split("|")), strict=True))
        places = [_PLACES[name] for name in row["Organization"].split(",")]
        notes = NOTES.get(row["Model"], {})
        row |= {name: notes.get(name, "") for name in _NOTE_COLUMNS}
        row |= {
            "Organization categorization": ",".join(place[0] for place in places),
            "Country (of organization)": ",".join(place[1] for place in places),
            "Task": _TASKS[row["Domain"].split(",")[0]],
            "Confidence": "Confident", "Frontier model": "True" if row["Model"] == "Ginkgo-120B" else "",
            "Abstract": f"{row['Model']} is a model for {_TASKS[row['Domain'].split(',')[0]].lower()}.",
            "Link": f"https://example.org/{row['Model']}", "Reference": f"On {row['Model']}", "Citations": "3",
        }  # fmt: skip
        rows.append(row)
    return rows


def old_rows() -> list[dict[str, str]]:
    """A copy of 2025: other headings, a value that the new copy lacks, an old name, and a model that is gone."""
    new = {row["Model"]: row for row in model_rows()}
    kept = [new["Dogwood-0.2B"], new["Oak-65B"], new["Elm-11B"]]
    renamed = {
        "Training dataset size (total)": "Training dataset size (datapoints)",
        "Hardware utilization (MFU)": "Hardware utilization",
    }
    old = [{renamed.get(name, name): cell for name, cell in row.items()} for row in kept]
    old[0] |= {"Training time (hours)": "168", "Parameters": "1"}  # the new copy's parameters win
    old[1] |= {"Model": "Oak"}
    old.append({**old[2], "Model": "Willow", "Link": "https://example.org/Willow", "Organization": "DeepMind"})
    return old


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    """Rows as a CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    return path


def hardware_rows() -> list[dict[str, str]]:
    """The nine chips."""
    return [dict(zip(HARDWARE_COLUMNS, line.split("|"), strict=True)) for line in _HARDWARE.strip().splitlines()]


def write_tables(folder: Path, *, old: bool = False) -> Path:
    """The two tables in a folder, as Epoch AI publishes them; with the copy of 2025 if asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "notable_ai_models_2026-07.csv", model_rows())
    write(folder / "ml_hardware_2026-07.csv", hardware_rows())
    if old:
        write(folder / "notable_ai_models_2025-03.csv", old_rows())
    return folder
