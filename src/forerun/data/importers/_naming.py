"""Names of devices, dtypes and families of vision models in published data sets, mapped to ours; for all importers."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import pandas as pd

#: Other spellings, reduced to lower-case letters and digits -> catalogue id. Names and aliases of the catalogue need no
#: entry. A name with a special meaning in a single data set belongs in that importer (`here`).
DEVICES = {
    # neusight, aiconfigurator, vidur
    # timm, pytorch_gpu_benchmark, help_nas_latency, model_zoo_train_memory, zeus_training_energy
    "1080ti": "gtx1080ti",
    "2080ti": "rtx2080ti",
    "3090": "rtx3090",
    "4090": "rtx4090",
    # language models: serving and training
    "amdinstinctmi300x192gbhbm3": "mi300x",
    "amdinstinctmi325x256gbhbm3e": "mi325x",
    "amdinstinctmi325x256gbhbm3edlc": "mi325x",  # DLC: direct liquid cooling
    "amdmi300xgpu": "mi300x",
    "dgxb200": "b200",
    "dgxb300": "b300",
    "dgxgb200": "gb200",
    "dgxgb300": "gb300",
    "dgxh100": "h100-sxm",
    "h100nvltensorcoregpupcie": "h100-nvl",
    "habanagaudi2": "gaudi2",
    "intelpvcgpu": "intel-max-1550",  # PVC: Ponte Vecchio
    "intelrgaudir2aiaccelerator": "gaudi2",
    "intelrxeonrplatinum8480200ghz": "xeon-8480",
    "nvidiaa100sxm40gb": "a100-sxm4-40gb",
    "nvidiablackwellgpub200sxm180gb": "b200",
    "nvidiablackwellgpugb200": "gb200",
    "nvidiablackwellultragpub300sxm270gb": "b300",
    "nvidiablackwellultragpugb300": "gb300",
    "nvidiagh200gpu": "gh200",
    "nvidiah100sxm580gb": "h100-sxm",
    "nvidiah100sxm80gb": "h100-sxm",
    "nvidiah200sxm5141gb": "h200",
    "nvidiartxpro6000sepcie96gb": "rtx-pro-6000-server",
    "rtx6000problackwellse": "rtx-pro-6000-server",
    "tputrillium": "tpu-v6e",
}
#: Devices that are not in the catalogue and whose plain slug would be wrong.
UNLISTED = {
    "amdinstinctmi250": "mi250",
    "amdmi250gpu": "mi250",  # the catalogue has the MI250X
    "nvidiah100sxm596gb": "h100-sxm-96gb",  # another memory
    "nvidiah200nvl141gb": "h200-nvl",  # a PCIe card of 600 W
    "sambanovasn40l": "sn40l",
}

#: dtype names of frameworks and tables -> ours.
DTYPES = {
    "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32", "double": "fp64", "float64": "fp64",
    "bfloat16": "bf16",
}  # fmt: skip
#: Prefixes of model names that denote weights or a variant instead of the family.
_TAGS = r"^(?:(?:tf|legacy|gluon|ssl|swsl|ig|tv|jx|ens|adv|nf|dm|gc|eca|ese|bat|sam2|test|wide|tiny|lambda)_)+"


def bare(name: str) -> str:
    """The normalised form for comparing complete names: lower-case letters and digits."""
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def slug(name: str) -> str:
    """A slug for a name without an id: lower case with dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def device_id(name: str, here: Mapping[str, str] | None = None) -> str:
    """Our id of a device; a slug of the name if the catalogue does not have it. Never a partial match.

    `here` maps names with a special meaning in this data set.
    """
    meant = (here or {}).get(name, name)
    known_as = _catalogue() | UNLISTED | DEVICES
    return known_as.get(bare(meant)) or slug(meant)


def device_ids(names: pd.Series, here: Mapping[str, str] | None = None) -> pd.Series:
    """Our ids of a column of devices; null stays null."""
    return names.map({name: device_id(str(name), here) for name in names.dropna().unique()})


def dtype(name: str) -> str:
    """Our name of a dtype."""
    return DTYPES.get(name.lower(), name.lower())


def vision_families(names: pd.Series) -> pd.Series:
    """The families of timm and torchvision models by name: tf_efficientnet_b0 -> efficientnet."""
    plain = names.str.replace(r"_v(\d)", r"v\1", n=1, regex=True).str.replace(_TAGS, "", regex=True)
    return plain.str.extract(r"^([a-z]+?(?:\d[a-z]{3,})?(?:v\d)?)(?=[\d_.]|$)")[0]


@functools.cache
def _catalogue() -> dict[str, str]:
    """Every name and alias of the catalogue in normalised form."""
    from forerun.device import aliases, device_ids

    return {bare(name): listed for name, listed in (aliases() | {i: i for i in device_ids()}).items()}


@functools.cache
def known(device: str) -> bool:
    """Whether the catalogue has it."""
    from forerun.device import load_device
    from forerun.errors import ForerunError

    try:
        load_device(device)
    except ForerunError:
        return False
    return True
