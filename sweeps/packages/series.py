"""Classifiers of time series as tsai publishes them, with random weights."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

from torch import nn


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
    "fasthtml",
    "IPython",
    "matplotlib",
    "imblearn",
    "pyts",
    "spacy",
    "sentencepiece",
    "fastdownload",
    "torchvision",
    "PIL",
)


def from_tsai(name: str, *settings: Any, module: str = "", **named: Any) -> nn.Module:
    models = importlib.import_module(f"tsai.models.{module or name}")
    return getattr(models, name)(*settings, **named)


def inception_time_plus() -> nn.Module:
    return from_tsai("InceptionTimePlus", 8, 10, 256)


def xception_time() -> nn.Module:
    return from_tsai("XceptionTime", 8, 10)


def series_resnet() -> nn.Module:
    return from_tsai("ResNet", 8, 10)


def series_fcn() -> nn.Module:
    return from_tsai("FCN", 8, 10)


def lstm_fcn() -> nn.Module:
    return from_tsai("LSTM_FCN", 8, 10, 256, module="RNN_FCN")


def series_tst() -> nn.Module:
    return from_tsai("TST", 8, 10, 256)


def tsai_patch_tst() -> nn.Module:
    return from_tsai("PatchTST", 7, None, 336, 96, 3, 16, 128, 256)


def omni_scale_cnn() -> nn.Module:
    return from_tsai("OmniScaleCNN", 8, 10, 256)


def series_gmlp() -> nn.Module:
    return from_tsai("gMLP", 8, 10, 256)


def xcm() -> nn.Module:
    return from_tsai("XCM", 8, 10, 256)


def tsit_plus() -> nn.Module:
    return from_tsai("TSiTPlus", 8, 10, 256, verbose=False)


def series_tcn() -> nn.Module:
    return from_tsai("TCN", 8, 10)


def ts_perceiver() -> nn.Module:
    return from_tsai("TSPerceiver", 8, 10, 256)


def ts_sequencer_plus() -> nn.Module:
    return from_tsai("TSSequencerPlus", 8, 10, 256, verbose=False)


def conv_tran_plus() -> nn.Module:
    return from_tsai("ConvTranPlus", 8, 10, 256)
