"""Families of networks that are named by their settings: `cnn:depth=6,filters=32`, `lstm:hidden=512,layers=2`.

One file per family, each with a `FAMILY` (base.Family). The files need PyTorch and nothing else, since the measuring
core builds the same networks on machines where only PyTorch is installed. Nothing is imported before it is used.
"""

from __future__ import annotations

import functools
from importlib import import_module

from forerun.errors import ForerunError, did_you_mean
from forerun.networks.base import Family

#: Prefix of a name -> file in this package.
FILES = {
    "cnn": "cnn", "unet": "unet",
    "diffusion_unet": "diffusion_unet", "dit": "dit", "vae_decoder": "vae_decoder", "gan": "gan",
    "super_resolution": "super_resolution", "detector": "detector", "segmenter": "segmenter", "video": "video",
    "volume": "volume", "style_transfer": "style_transfer", "nerf": "nerf", "autoencoder": "autoencoder",
    "pose": "pose", "optical_flow": "optical_flow", "mixer_mae": "mixer_mae",
    "speech_cnn": "speech_cnn", "conformer": "conformer", "speech_seq2seq": "speech_seq2seq",
    "recurrent": "recurrent", "recommender": "recommender", "point_cloud": "point_cloud",
    "graph_network": "graph_network", "neural_operator": "neural_operator", "state_space": "state_space",
    "time_series": "time_series", "tabular_transformer": "tabular_transformer", "seq2seq": "seq2seq",
    "biased_attention": "biased_attention", "mixture_of_experts": "mixture_of_experts",
    "torch_transformer": "torch_transformer", "multi_query": "multi_query", "nasbench201": "nasbench201",
}  # fmt: skip


def is_family(name: str) -> bool:
    """Whether a model's name begins with the prefix of a family."""
    prefix, colon, _ = name.partition(":")
    return bool(colon) and prefix in FILES


@functools.cache
def family(prefix: str) -> Family:
    """The family of a prefix (`cnn`)."""
    if prefix not in FILES:
        raise ForerunError(f"there is no family of networks called {prefix!r}.{did_you_mean(prefix, FILES)}")
    known = import_module(f"forerun.networks.{FILES[prefix]}").FAMILY
    assert isinstance(known, Family)
    return known


@functools.cache
def names() -> list[str]:
    """The families whose settings all have defaults, as they are written: `unet:`."""
    return [f"{prefix}:" for prefix in FILES if all(s.default is not None for s in family(prefix).settings.values())]


def family_of(name: str) -> Family:
    """The family of a model's name."""
    return family(name.partition(":")[0])
