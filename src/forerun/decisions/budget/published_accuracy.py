"""Published accuracies of image classifiers: torchvision's come with the package, timm's with its imported tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forerun.capture import torch_compat

#: The collections of models that `forerun.budget` accepts by name.
COLLECTIONS = ("timm", "torchvision")


@dataclass(frozen=True)
class Published:
    """A network at an image size, with the accuracy of its best published weights on ImageNet-1k."""

    model: str  # its name in forerun
    weights: str
    image_size: int
    top1: float  # 0 to 1
    parameters: float
    flops: float | None  # of one image; None: not published


def published(collection: str) -> tuple[list[Published], list[str]]:
    """The models of a collection, most accurate first, and where their accuracies come from, in sentences."""
    networks = list(_timm()) if collection == "timm" else []
    sources = ["results-imagenet.csv of timm, as it was imported"]
    if not networks:
        networks = list(_torchvision())
        sources = ["those documented with torchvision's weights"]
        if collection == "timm":
            from forerun.data.importers import importer

            timm = importer("timm")
            sources.append(f"the models of timm can be added: {timm.sources[0].clone} && {timm.command}")
    ranked = sorted(networks, key=lambda p: (-p.top1, p.parameters, p.weights))
    best: dict[tuple[str, int], Published] = {}
    for network in ranked:  # all weights of one network take the same time
        best.setdefault((network.model, network.image_size), network)
    return list(best.values()), sources


def _timm() -> Iterator[Published]:
    from forerun.data.store import Store  # needs an extra, which torchvision's accuracies do without

    rows = Store().read("accuracies")
    for r in rows[rows["dataset"] == "timm"].itertuples():
        flops = None if r.flops != r.flops else float(r.flops)
        yield Published(
            f"timm/{r.model.partition('.')[0]}", r.model, int(r.image_size), float(r.top1_accuracy),
            float(r.parameters), flops,
        )  # fmt: skip


def _torchvision() -> Iterator[Published]:
    torch_compat.prepare()
    import torchvision

    for name in torchvision.models.list_models(module=torchvision.models):
        for weights in torchvision.models.get_model_weights(name):
            about = weights.meta
            scores = about.get("_metrics", {}).get("ImageNet-1K")
            if scores:
                yield Published(
                    f"torchvision/{name}", f"{name}.{weights.name}", int(weights.transforms.keywords["crop_size"]),
                    scores["acc@1"] / 100, float(about["num_params"]),
                    about["_ops"] * 2e9 if about.get("_ops") else None,  # published in GMACs
                )  # fmt: skip
