"""Separation of voices and spectra as speechbrain, asteroid and nnAudio publish them, with random weights."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

import torch
from torch import Tensor, nn


def absent(*packages: str) -> None:
    """Stands in for packages that the machine may lack: they are imported for files and data, never by a network."""

    class StandIn(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__init__": lambda self, *args, **kwargs: None})

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            if name.partition(".")[0] in missing:
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
            return None

        def create_module(self, spec: Any) -> types.ModuleType:
            return StandIn(spec.name)

        def exec_module(self, module: types.ModuleType) -> None:
            pass

    missing = {package for package in packages if importlib.util.find_spec(package) is None}
    sys.meta_path.append(Finder())


absent(
    "soundfile", "sentencepiece", "hyperpyyaml", "joblib", "julius", "librosa", "pb_bss_eval", "torch_stoi", "pystoi"
)


class Separator(nn.Module):
    """speechbrain's separation of two speakers: an encoder, masks of a dual-path network, a decoder for each."""

    def __init__(self, encoder: nn.Module, masks: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.masks, self.decoder = encoder, masks, decoder

    def forward(self, x: Tensor) -> Tensor:
        mixture = self.encoder(x)
        return torch.stack([self.decoder(mixture * mask) for mask in self.masks(mixture)], dim=-1)


def sepformer() -> nn.Module:
    from speechbrain.lobes.models.dual_path import Decoder, Dual_Path_Model, Encoder, SBTransformerBlock

    def block() -> nn.Module:
        return SBTransformerBlock(8, 256, 8, d_ffn=1024, dropout=0, use_positional_encoding=True, norm_before=True)

    masks = Dual_Path_Model(256, 256, block(), block(), num_layers=2, K=250, num_spks=2, skip_around_intra=True)
    decoder = Decoder(in_channels=256, out_channels=1, kernel_size=16, stride=8, bias=False)
    return Separator(Encoder(16, 256), masks, decoder)


def from_asteroid(name: str, *settings: Any, **named: Any) -> nn.Module:
    from asteroid import models

    return getattr(models, name)(*settings, **named)


def conv_tasnet() -> nn.Module:
    return from_asteroid("ConvTasNet", 2)


def dprnn_tasnet() -> nn.Module:
    return from_asteroid("DPRNNTasNet", 2)


def dptnet() -> nn.Module:
    return from_asteroid("DPTNet", 2)


def sudormrf() -> nn.Module:
    return from_asteroid("SuDORMRFNet", 2)


def dcunet() -> nn.Module:
    return from_asteroid("DCUNet", "DCUNet-20", fix_length_mode="pad")


def lstm_tasnet() -> nn.Module:
    return from_asteroid("LSTMTasNet", 2)


def demask() -> nn.Module:
    return from_asteroid("DeMask")


def from_nnaudio(name: str, **settings: Any) -> nn.Module:
    from nnAudio import features

    return getattr(features, name)(verbose=False, **settings)


def mel_spectrogram() -> nn.Module:
    return from_nnaudio("MelSpectrogram", trainable_mel=True, trainable_STFT=True)


def stft_magnitude() -> nn.Module:
    return from_nnaudio("STFT", output_format="Magnitude")


def cqt_1992() -> nn.Module:
    return from_nnaudio("CQT1992v2", trainable=True)


def cqt_2010() -> nn.Module:
    return from_nnaudio("CQT2010v2")
