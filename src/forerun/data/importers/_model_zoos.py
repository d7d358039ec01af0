"""The model zoos as in their repositories: MODEL_ZOO.md of Detectron2, metafiles of MMDetection and others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from forerun.data.importers._files import missing

#: Columns of MODEL_ZOO.md that are read.
TIMES = ("train time (s/iter)", "inference time (s/im)", "train mem (GB)")


def detectron2(clone: Path) -> pd.DataFrame:
    """The rows of the HTML tables in MODEL_ZOO.md, with the config linked in the first cell."""
    page = clone / "MODEL_ZOO.md"
    if not page.exists():
        raise missing("detectron2/MODEL_ZOO.md", "detectron2_v100.parquet")
    rows = []
    for table in re.findall(r"<table>(.*?)</table>", page.read_text(encoding="utf-8"), re.DOTALL):
        head = [_text(cell) for cell in re.findall(r"<th[^>]*>(.*?)</th>", table, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL):
            cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
            config = re.search(r'href="(configs/[^"]+)"', cells[0]) if cells else None
            texts = dict(zip(head, map(_text, cells), strict=False))
            rows.append({"config": config[1] if config else None, **{name: texts.get(name) for name in TIMES}})
    frame = pd.DataFrame(rows, columns=["config", *TIMES])
    return frame.assign(**{name: pd.to_numeric(frame[name], errors="coerce") for name in TIMES})


def openmmlab(clone: Path) -> pd.DataFrame:
    """The models in configs/*/metafile.yml; training resources are those of the model or else its collection."""
    files = sorted(clone.glob("configs/*/metafile.y*ml"))
    if not files:
        raise missing(f"{clone.name}/configs/*/metafile.yml", f"{clone.name}.parquet")
    return pd.DataFrame([row for path in files for row in _models(yaml.safe_load(path.read_text(encoding="utf-8")))])


def _models(metafile: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(metafile, dict):
        return
    collections = {
        collection["Name"]: collection.get("Metadata") or {} for collection in metafile.get("Collections") or ()
    }
    for model in metafile.get("Models") or ():
        metadata = model.get("Metadata") or {}
        shared = collections.get(model.get("In Collection"), {})
        timed = (metadata.get("inference time (ms/im)") or [{}])[0]
        yield {
            "name": model["Name"], "config": model.get("Config"), "collection": model.get("In Collection"),
            "train_mem_gb": metadata.get("Training Memory (GB)", metadata.get("Memory (GB)")),
            "train_resources": metadata.get("Training Resources", shared.get("Training Resources")),
            "batch_size": metadata.get("Batch Size"), "inf_ms": timed.get("value"), "inf_hw": timed.get("hardware"),
            "inf_bs": timed.get("batch size"), "inf_mode": timed.get("mode"), "inf_res": timed.get("resolution"),
        }  # fmt: skip


def _text(cell: str) -> str:
    """A cell without its tags, on one line."""
    return re.sub(r"<[^>]+>", "", re.sub(r"<br\s*/?>", " ", cell)).strip()
