"""Fits the law of training on cards that nobody measured, and its intervals, to published sets.

forerun data import timm FOLDER                     and pytorch_gpu_benchmark and zeus_training_energy
python benchmarks/fit_cards.py                      minutes: captures the models, writes shipped/cards.json
forerun evaluate --cards                            judges it with each card held out
"""

from __future__ import annotations

import json

from rich.progress import track

from forerun.data.store import Store
from forerun.evaluate import cards
from forerun.predictors.laws.other_cards import FILE

if __name__ == "__main__":
    rows = cards.gathered(Store(), lambda items, count: track(items, "capturing", total=count))
    law = cards.fitted(cards.judged(rows))
    FILE.write_text(json.dumps(law.to_json()) + "\n", encoding="utf-8")
    print(FILE.read_text(encoding="utf-8").strip())
