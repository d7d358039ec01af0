"""Phase `curves`: trains small networks on real images and records the accuracy after every epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from . import models, specs
from .worker import STOP_BEFORE_S, Worker, limit, why

RUN_S = 120.0  # a run takes longer than a case of another phase


def cases(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Every network of the spec with the settings of its run."""
    run = {k: spec[k] for k in ("batch", "epochs", "optimizer", "learning_rate")}
    named = [model for block in spec["blocks"] for model in specs.models(block, int(spec.get("seed", 0)))]
    return [{"kind": "curve", **model, "mode": "training", "dtype": "fp32", **run} for model in named]


class Curves(Worker):
    phase = "curves"

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        done = {row["key"] for row in self.earlier if row.get("kind") == "curve"}
        loaded = [specs.load(path) for path in args.spec]
        todo = [(spec, case) for spec in loaded if spec.get("kind") == "curve" for case in cases(spec)]
        self.todo = [(spec, case) for spec, case in todo if specs.key_of(case) not in done]
        self.data = args.data

    def run(self) -> int:
        import numpy as np

        images = dict(np.load(self.data)) if self.todo else {}  # allow_pickle stays off, since the file is not trusted
        while self.todo and self.left_s() > STOP_BEFORE_S:
            spec, case = self.todo.pop(0)
            begin = time.monotonic()
            self.now("curve", specs.key_of(case), 0, case, spec["name"])
            about = {"kind": "curve", "key": specs.key_of(case), "repeat": 0, "spec": spec["name"], "case": case}
            try:
                with limit(min(RUN_S, max(1.0, self.left_s()))):
                    alive = lambda: self.now("curve", about["key"], 0, case, spec["name"])  # noqa: B023, E731
                    epochs = self._train(case, images, alive)
                result: dict[str, Any] = {"status": "ok", "epochs": epochs}
            except Exception as error:  # noqa: BLE001 - a failure is a row
                result = dict(zip(("status", "reason"), why(error), strict=True))
            if result["status"] == "timeout" and self.left_s() < STOP_BEFORE_S:
                break  # the budget was too short; another run continues
            self.write({**about, **result})
            self.forget()
            last = result["epochs"][-1]["test_accuracy"] if result["status"] == "ok" else result["reason"]
            print(f"{case['name']}: {last} after {time.monotonic() - begin:.1f} s", flush=True)
        self.print_end(len(self.todo))
        return 0

    def _train(self, case: dict[str, Any], images: dict[str, Any], alive: Callable[[], None]) -> list[dict[str, float]]:
        import torch
        from torch.nn import functional

        torch.manual_seed(0)
        model = models.Built(case, self.meter.device).model
        x, y = _ready(images["x_train"], images["y_train"], self.meter.device)
        tx, ty = _ready(images["x_test"], images["y_test"], self.meter.device)
        optimizer = models.optimizer_of(case, model, case["learning_rate"])
        functional.cross_entropy(model(x[: case["batch"]]), y[: case["batch"]]).backward()  # loads kernels
        seconds, out = 0.0, []
        for epoch in range(1, case["epochs"] + 1):
            alive()
            model.train()
            self.meter.sync()
            begin = time.perf_counter()
            order = torch.randperm(len(x), device=x.device)
            total = torch.zeros((), device=x.device)
            right = torch.zeros((), device=x.device)
            for i in range(0, len(x), case["batch"]):
                chosen = order[i : i + case["batch"]]
                batch = x[chosen]
                batch = torch.where((torch.rand(len(chosen), 1, 1, 1, device=x.device) < 0.5), batch.flip(-1), batch)
                optimizer.zero_grad(set_to_none=True)
                logits = model(batch)
                loss = functional.cross_entropy(logits, y[chosen])
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(chosen)
                right += (logits.argmax(1) == y[chosen]).sum()
            self.meter.sync()
            seconds += time.perf_counter() - begin
            model.eval()
            with torch.inference_mode():
                tested = float((model(tx).argmax(1) == ty).float().mean())
            losses = {"epoch": epoch, "seconds": seconds, "loss": float(total) / len(x)}
            out.append({**losses, "train_accuracy": float(right) / len(x), "test_accuracy": tested})
        return out


def _ready(images: Any, labels: Any, device: str) -> tuple[Any, Any]:
    """All images on the device, normalised to mean 0 and standard deviation 1 per channel."""
    import torch

    x = torch.from_numpy(images).to(device).float() / 255
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    return x, torch.from_numpy(labels).to(device).long()
