"""Forecasters of time series as gluonts and pytorch-forecasting publish them, with random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

HOURLY = [1, 2, 3, 4, 5, 6, 7, 23, 24, 25, 47, 48, 49, 71, 72, 73, 95, 96, 97, 119, 120, 121, 143, 144, 145, 167, 168]
ENCODER = {"d_model": 128, "nhead": 16, "dim_feedforward": 256, "dropout": 0.2, "activation": "gelu"}
DEPTH = {"norm_first": False, "num_encoder_layers": 3, "scaling": "mean"}


class Forecaster(nn.Module):
    """A gluonts network of the past alone, all of it observed: the parameters of the forecast's distribution."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, past: Tensor) -> Any:
        return self.network(past, torch.ones_like(past))[0]


class DeepAR(nn.Module):
    """DeepAR over past and horizon: `sampled` draws forecasts step by step, otherwise the horizon is known."""

    def __init__(self, network: nn.Module, sampled: bool) -> None:
        super().__init__()
        self.network = network
        self.sampled = sampled

    def forward(self, past: Tensor, past_features: Tensor, features: Tensor, future: Tensor, ids: Tensor) -> Any:
        known = torch.ones_like(past)
        static = torch.zeros_like(past[:, :1])
        if self.sampled:
            return self.network(ids, static, past_features, past, known, features)
        return self.network.unroll_lagged_rnn(ids, static, past_features, past, known, features, future)[0]


class WaveNetLoss(nn.Module):
    """gluonts' WaveNet with the horizon known, as in training; the series are numbers of bins."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, token_ids: Tensor, past_features: Tensor, features: Tensor, ids: Tensor) -> Tensor:
        past, future = token_ids[:, : past_features.shape[2]], token_ids[:, past_features.shape[2] :]
        one = torch.ones_like(features[:, :1, 0])
        seen, coming = torch.ones_like(past_features[:, 0]), torch.ones_like(features[:, 0])
        return self.network.loss(ids, one, past, seen, past_features, features, future, coming, one)


class Covariates(nn.Module):
    """gluonts' TFT and TiDE: the past, features of past and horizon, one number and one category for each series."""

    def __init__(self, network: nn.Module, horizon: int, split: bool) -> None:
        super().__init__()
        self.network, self.horizon, self.split = network, horizon, split

    def forward(self, past: Tensor, features: Tensor, static: Tensor, ids: Tensor) -> Any:
        known = torch.ones_like(past)
        if not self.split:
            return self.network(past, known, static, ids, features)[0]
        before, ahead = features[:, : -self.horizon], features[:, -self.horizon :]
        return self.network(static, ids, before, past, known, ahead)[0]


class Dictionary(nn.Module):
    """A network of pytorch-forecasting, which takes what its data loader returns: windows of full length."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, past: Tensor, future: Tensor) -> Any:
        batch, device = past.shape[0], past.device
        given = {"encoder_cont": past, "decoder_cont": future, "target_scale": torch.ones(batch, 2, device=device)}
        for part, window in (("encoder", past), ("decoder", future)):
            given[f"{part}_cat"] = torch.zeros(batch, window.shape[1], 0, dtype=torch.long, device=device)
            given[f"{part}_lengths"] = torch.full((batch,), window.shape[1], device=device)
        return self.network(given)["prediction"]


def unscaled(out: Any) -> Tensor:
    """The prediction as it is; pytorch-forecasting wants a function that undoes the scaling of the data."""
    return out["prediction"]


def deepar_network() -> nn.Module:
    from gluonts.torch.model.deepar.module import DeepARModel

    return DeepARModel("h", 48, 24, 5, 1, 1, [370], num_layers=2, hidden_size=40, lags_seq=HOURLY)


def deepar() -> nn.Module:
    return DeepAR(deepar_network(), sampled=False)


def deepar_sampled() -> nn.Module:
    return DeepAR(deepar_network(), sampled=True)


def simple_feed_forward() -> nn.Module:
    from gluonts.torch.model.simple_feedforward.module import SimpleFeedForwardModel

    class Past(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = SimpleFeedForwardModel(24, 240, [200, 200])

        def forward(self, past: Tensor) -> Any:
            return self.network(past)[0]

    return Past()


def gluonts_tft() -> nn.Module:
    from gluonts.torch.model.tft.module import TemporalFusionTransformerModel

    network = TemporalFusionTransformerModel(168, 24, [1], [370], [5], [], [], [], d_hidden=32, d_var=32)
    return Covariates(network, 24, split=False)


def tide() -> nn.Module:
    from gluonts.torch.distributions import StudentTOutput
    from gluonts.torch.model.tide.module import TiDEModel

    widths = [4, 256, 256, 64, 16, 16]
    network = TiDEModel(168, 24, 5, 2, 1, 1, [370], [16], *widths, 0.3, 2, 2, True, StudentTOutput(), "mean")
    return Covariates(network, 24, split=True)


def gluonts_patch_tst() -> nn.Module:
    from gluonts.torch.model.patch_tst.module import PatchTSTModel

    return Forecaster(PatchTSTModel(96, 336, 16, 8, "end", num_feat_dynamic_real=0, **ENCODER, **DEPTH))


def lag_tst() -> nn.Module:
    from gluonts.torch.model.lag_tst.module import LagTSTModel

    return Forecaster(LagTSTModel(24, 168, "h", lags_seq=HOURLY, **ENCODER, **DEPTH))


def i_transformer() -> nn.Module:
    from gluonts.torch.model.i_transformer.module import ITransformerModel

    return Forecaster(ITransformerModel(96, 96, **ENCODER, **DEPTH))


def d_linear() -> nn.Module:
    from gluonts.torch.model.d_linear.module import DLinearModel

    return Forecaster(DLinearModel(96, 336, 20))


def gluonts_wavenet() -> nn.Module:
    from gluonts.torch.model.wavenet.module import WaveNet

    bins = [index / 100 for index in range(1024)]
    return WaveNetLoss(WaveNet(24, bins, 24, 32, 8, 1, num_feat_dynamic_real=5, cardinality=[370]))


def from_forecasting(name: str, **settings: Any) -> nn.Module:
    import pytorch_forecasting

    settings = {"output_transformer": unscaled, "dataset_parameters": {"target": "target"}, **settings}
    return Dictionary(getattr(pytorch_forecasting, name)(**settings))


def n_beats() -> nn.Module:
    return from_forecasting("NBeats", context_length=168, prediction_length=24, widths=[32, 512])


def n_hits() -> nn.Module:
    names = {"x_reals": ["target"], "time_varying_reals_encoder": ["target"]}
    return from_forecasting("NHiTS", context_length=168, prediction_length=24, **names)


def forecasting_tft() -> nn.Module:
    known = ["hour", "day", "week"]
    names = {"x_reals": ["target", *known], "time_varying_reals_decoder": known}
    encoder = ["target", *known]
    return from_forecasting("TemporalFusionTransformer", hidden_size=160, time_varying_reals_encoder=encoder, **names)
