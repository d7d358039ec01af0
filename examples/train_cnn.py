"""Trains CNNs of the family `cnn:` on CIFAR-10 and writes what each run took and reached.

python examples/train_cnn.py --data cifar-10-batches-bin --depth 2,4,6 --filters 16,32 --batch 128 --epochs 10 -o runs

For every network it prints a summary of the layers and a line for every epoch, and writes to the folder `runs`:
runs.csv (a line for each network: depth, filters, batch, parameters, seconds of an epoch, images per second,
accuracies), epochs.csv (a line for each epoch), accuracy.png and loss.png. The data are CIFAR-10 as its authors publish
it (the folder of the binary or of the Python version) or an .npz with x_train, y_train, x_test, y_test (images of
n x 3 x 32 x 32 bytes).
"""

from __future__ import annotations

import argparse
import csv
import io
import pickle
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from forerun.networks import family_of

CLASSES, SHAPE = 10, (3, 32, 32)
PRECISIONS = {"fp32": None, "amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
Part = tuple[torch.Tensor, torch.Tensor]


# -- data ------------------------------------------------------------------------------------------------------------


class _ArraysOnly(pickle.Unpickler):
    """Reads the pickles of CIFAR-10's Python version, and refuses any that hold more than arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.split(".")[0], name) in {("numpy", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, not only arrays")


def read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to train on and to test on, from an .npz or from a folder of CIFAR-10's files."""
    if path.suffix == ".npz":
        kept = np.load(path)  # allow_pickle stays off
        return tuple(kept[name] for name in ("x_train", "y_train", "x_test", "y_test"))  # type: ignore[return-value]
    training, test = [path / f"data_batch_{n}" for n in range(1, 6)], path / "test_batch"
    if test.with_suffix(".bin").exists():
        x, y = zip(*(_binary(p.with_suffix(".bin")) for p in training), strict=True)
        return np.concatenate(x), np.concatenate(y), *_binary(test.with_suffix(".bin"))
    if test.exists():
        x, y = zip(*(_pickled(p) for p in training), strict=True)
        return np.concatenate(x), np.concatenate(y), *_pickled(test)
    raise SystemExit(f"{path} is neither an .npz nor a folder with CIFAR-10's test_batch")


def _binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 1 + int(np.prod(SHAPE)))
    return rows[:, 1:].reshape(-1, *SHAPE), rows[:, 0].astype(np.int64)


def _pickled(path: Path) -> tuple[np.ndarray, np.ndarray]:
    kept = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    return kept[b"data"].reshape(-1, *SHAPE), np.array(kept[b"labels"], np.int64)


def parts(path: Path, device: str, share: float = 0.1) -> dict[str, Part]:
    """Training, validation and test images on the device, normalised by the mean and deviation of training images.

    Validation images are a share of the training images, the same ones in every run.
    """
    x, y, tx, ty = read(path)
    order = np.random.default_rng(0).permutation(len(x))
    kept, held = np.split(order, [len(x) - int(share * len(x))])

    def ready(images: np.ndarray, labels: np.ndarray) -> Part:
        return torch.from_numpy(images).to(device).float() / 255, torch.from_numpy(labels).to(device).long()

    out = {"training": ready(x[kept], y[kept]), "validation": ready(x[held], y[held]), "test": ready(tx, ty)}
    mean, deviation = (getattr(out["training"][0], f)((0, 2, 3), keepdim=True) for f in ("mean", "std"))
    return {name: ((images - mean) / deviation, labels) for name, (images, labels) in out.items()}


# -- one run ---------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """One network with its settings, and what came out."""

    depth: int
    filters: int
    batch: int
    precision: str = "fp32"
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    device: str = "cpu"
    parameters: int = 0
    epochs: list[dict[str, float]] = field(default_factory=list)
    test: dict[str, float] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"cnn:depth={self.depth},filters={self.filters},classes={CLASSES}"

    @property
    def epoch_s(self) -> float:
        """The median of the epochs after the first one, in which kernels are loaded."""
        return statistics.median(e["seconds"] for e in (self.epochs[1:] or self.epochs))

    def row(self) -> dict[str, Any]:
        last = self.epochs[-1]
        return {
            "model": self.name, "depth": self.depth, "filters": self.filters, "batch": self.batch,
            "precision": self.precision, "optimizer": self.optimizer, "learning_rate": self.learning_rate,
            "device": self.device, "parameters": self.parameters, "epochs": len(self.epochs),
            "training_images": self.images["training"], "epoch_s": round(self.epoch_s, 4),
            "images_per_s": round(self.images["training"] / self.epoch_s, 1),
            "training_loss": last["training_loss"], "validation_loss": last["validation_loss"],
            "training_accuracy": last["training_accuracy"], "validation_accuracy": last["validation_accuracy"],
            "test_loss": self.test["loss"], "test_accuracy": self.test["accuracy"],
        }  # fmt: skip


def summary(model: nn.Module) -> str:
    """The layers of a network with the shape of what they make of one image, and their parameters."""
    lines, x = [f"{'layer':<22}{'output':<18}{'parameters':>12}"], torch.zeros(1, *SHAPE)
    with torch.inference_mode():
        for layer in model:  # type: ignore[attr-defined]
            x = layer(x)
            count = sum(p.numel() for p in layer.parameters())
            lines.append(f"{type(layer).__name__:<22}{' x '.join(map(str, x.shape[1:])):<18}{count:>12,}")
    return "\n".join([*lines, f"{'in all':<40}{sum(p.numel() for p in model.parameters()):>12,}"])


def train(run: Run, data: dict[str, Part], epochs: int, device: str, say: Any = print) -> Run:
    """Trains one network; every epoch is timed without its validation."""
    torch.manual_seed(0)
    model = family_of(run.name).make(run.name)
    say(f"\n{run.name}, batch {run.batch}, {run.precision}, {run.optimizer}\n{summary(model)}")
    model.to(device)
    run.parameters = sum(p.numel() for p in model.parameters())
    run.images = {name: len(labels) for name, (_, labels) in data.items()}
    run.device = torch.cuda.get_device_name() if device == "cuda" else device
    optimizer = OPTIMIZERS[run.optimizer](model.parameters(), lr=run.learning_rate)
    half = PRECISIONS[run.precision]
    scaler = torch.amp.GradScaler(device, enabled=half is torch.float16)
    images, labels = data["training"]
    for number in range(1, epochs + 1):
        model.train()
        _wait(device)
        began, loss_sum, right = time.perf_counter(), torch.zeros((), device=device), torch.zeros((), device=device)
        for chosen in torch.randperm(len(labels), device=device).split(run.batch):
            x = images[chosen]
            x = torch.where(torch.rand(len(chosen), 1, 1, 1, device=device) < 0.5, x.flip(-1), x)
            with torch.autocast(device, dtype=half) if half else nullcontext():
                scores = model(x)
                loss = functional.cross_entropy(scores, labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            loss_sum += loss.detach() * len(chosen)
            right += (scores.argmax(1) == labels[chosen]).sum()
        _wait(device)
        seconds = time.perf_counter() - began
        held = judge(model, data["validation"], device)
        run.epochs.append({
            "epoch": number, "seconds": seconds, "training_loss": float(loss_sum) / len(labels),
            "training_accuracy": float(right) / len(labels), "validation_loss": held["loss"],
            "validation_accuracy": held["accuracy"],
        })  # fmt: skip
        say(
            f"epoch {number:>3}: {seconds:.2f} s, {len(labels) / seconds:,.0f} images/s, loss "
            f"{run.epochs[-1]['training_loss']:.3f} (validation {held['loss']:.3f}), accuracy "
            f"{run.epochs[-1]['training_accuracy']:.1%} (validation {held['accuracy']:.1%})"
        )
    run.test = judge(model, data["test"], device)
    say(f"test: loss {run.test['loss']:.3f}, accuracy {run.test['accuracy']:.1%}; an epoch takes {run.epoch_s:.2f} s")
    return run


def judge(model: nn.Module, part: Part, device: str) -> dict[str, float]:
    """Loss and accuracy on images that the network is not trained on."""
    model.eval()
    loss, right = 0.0, 0
    with torch.inference_mode():
        for x, y in zip(*(t.split(1000) for t in part), strict=True):
            scores = model(x)
            loss += float(functional.cross_entropy(scores, y, reduction="sum"))
            right += int((scores.argmax(1) == y).sum())
    return {"loss": loss / len(part[1]), "accuracy": right / len(part[1])}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# -- what is kept ----------------------------------------------------------------------------------------------------


def write(runs: list[Run], folder: Path) -> None:
    """runs.csv, epochs.csv and the plots of what has been run so far."""
    folder.mkdir(parents=True, exist_ok=True)
    of_epochs = [{"model": r.name, "batch": r.batch, "precision": r.precision, **e} for r in runs for e in r.epochs]
    for name, rows in (("runs.csv", [r.row() for r in runs]), ("epochs.csv", of_epochs)):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    plot(runs, folder)


def plot(runs: list[Run], folder: Path) -> None:
    """Accuracy and loss by epoch: training dashed, validation solid, the test accuracy in the legend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for what in ("accuracy", "loss"):
        figure, panel = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
        for number, run in enumerate(runs):
            colour = pyplot.cm.viridis(number / max(1, len(runs)))
            epochs = [e["epoch"] for e in run.epochs]
            panel.plot(epochs, [e[f"training_{what}"] for e in run.epochs], "--", color=colour, linewidth=1)
            reached = f"{run.test[what]:.1%}" if what == "accuracy" else f"{run.test[what]:.2f}"
            label = f"depth {run.depth}, filters {run.filters}, batch {run.batch}, {run.precision}: test {reached}"
            panel.plot(epochs, [e[f"validation_{what}"] for e in run.epochs], color=colour, label=label)
        panel.set(xlabel="epoch", ylabel=f"{what} (dashed: training, solid: validation)")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.legend(fontsize=7)
        panel.grid(alpha=0.3)
        figure.savefig(folder / f"{what}.png", dpi=110)
        pyplot.close(figure)


def grid(options: argparse.Namespace) -> Iterator[Run]:
    for depth in options.depth:
        for filters in options.filters:
            for batch in options.batch:
                for precision in options.precision:
                    yield Run(depth, filters, batch, precision, options.optimizer, options.learning_rate)


def main(argv: list[str] | None = None) -> list[Run]:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10, or an .npz")
    parser.add_argument("--depth", type=numbers, default=[4], help="convolutions, separated by commas")
    parser.add_argument("--filters", type=numbers, default=[32], help="filters of the first two")
    parser.add_argument("--batch", type=numbers, default=[128])
    parser.add_argument("--precision", type=lambda text: text.split(","), default=["fp32"], help=", ".join(PRECISIONS))
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adam")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", "-o", type=Path, default=Path("runs"))
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.precision) - set(PRECISIONS)):
        parser.error(f"precision {unknown[0]} is not known: {', '.join(PRECISIONS)}")
    if options.epochs < 1 or min(*options.depth, *options.filters, *options.batch) < 1:
        parser.error("epochs, depth, filters and batch are at least 1")
    if not options.data.exists():
        parser.error(f"{options.data} does not exist: give CIFAR-10's folder, or an .npz")
    data = parts(options.data, options.device)
    done: list[Run] = []
    for run in grid(options):
        done.append(train(run, data, options.epochs, options.device))
        write(done, options.output)
    print(f"\nwritten to {options.output}: runs.csv, epochs.csv, accuracy.png, loss.png")
    return done


if __name__ == "__main__":
    main(sys.argv[1:])
