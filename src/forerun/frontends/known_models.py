"""The models that are known by name: architectures of Hugging Face, timm and torchvision models, families."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError, did_you_mean
from forerun.frontends import zoo
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.networks import FILES, family, names


def known_models(part: str | None = None) -> dict[str, Any]:
    """All of them, or those whose name contains `part`, as plain data."""
    architectures, vision, families = hf_catalog.architecture_ids(), zoo.names(), list(FILES)
    if part is not None:
        word = part.lower()
        architectures = [a for a in architectures if word in a.lower()]
        vision = [v for v in vision if word in v.lower()]
        families = [f for f in families if word.partition(":")[0] in f]
        if not architectures and not vision and not families:
            hint = did_you_mean(part, [*hf_catalog.known_names(), *zoo.names(), *names()])
            raise ForerunError(f"no model's name contains {part!r}.{hint}")
    return {"huggingface": architectures, "vision": vision, "families": [_family(prefix) for prefix in families]}


def one_model(name: str) -> dict[str, Any] | None:
    """An architecture of the catalogue with its configuration, or None."""
    found = hf_catalog.architecture(name)
    return None if found is None else {**vars(found), "aliases": list(found.aliases)}


def _family(prefix: str) -> dict[str, Any]:
    known = family(prefix)
    settings = {key: setting.default for key, setting in known.settings.items()}
    return {"family": f"{known.prefix}:", "kind": known.kind, "settings": settings}
