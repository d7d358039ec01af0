"""Networks on speech and sound as speechbrain and torchaudio publish them, with random weights."""

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


class FullLength(nn.Module):
    """A network that also takes the length of each clip, here the whole clip: relative (1.0) or in frames."""

    def __init__(self, network: nn.Module, relative: bool = False) -> None:
        super().__init__()
        self.network = network
        self.relative = relative

    def forward(self, x: Tensor) -> Any:
        if self.relative:
            return self.network(x, torch.ones(x.shape[0], device=x.device))
        lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
        return self.network(x, lengths)[0]


class Recogniser(nn.Module):
    """speechbrain's speech recogniser of mel frames and the transcript so far: convolutions, encoder and decoder."""

    def __init__(self, front_end: nn.Module, transformer: nn.Module, vocabulary: int, width: int) -> None:
        super().__init__()
        self.front_end = front_end
        self.transformer = transformer
        self.ctc = nn.Linear(width, vocabulary)
        self.sequence = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        encoded, decoded = self.transformer(self.front_end(x), token_ids)
        return self.ctc(encoded), self.sequence(decoded)


class Transducer(nn.Module):
    """torchaudio's RNN-T with whole clips and whole transcripts."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, token_ids: Tensor) -> Tensor:
        batch, frames = x.shape[:2]
        lengths = torch.full((batch,), frames, dtype=torch.int32, device=x.device)
        targets = torch.full((batch,), token_ids.shape[1], dtype=torch.int32, device=x.device)
        return self.network(x, lengths, token_ids.int(), targets)[0]


class Speaker(nn.Module):
    """torchaudio's Tacotron 2 with the mel frames to come, as in training."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, token_ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        letters = torch.full((x.shape[0],), token_ids.shape[1], device=x.device)
        frames = torch.full((x.shape[0],), x.shape[2], device=x.device)
        return self.network(token_ids, letters, x, frames)[:2]


def ecapa_tdnn() -> nn.Module:
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    return ECAPA_TDNN(80, channels=[1024, 1024, 1024, 1024, 3072], lin_neurons=192)


def xvector() -> nn.Module:
    from speechbrain.lobes.models.Xvector import Xvector

    return Xvector(in_channels=24, lin_neurons=512)


def speaker_resnet() -> nn.Module:
    from speechbrain.lobes.models.ResNet import ResNet

    return ResNet(input_size=80, channels=[128, 128, 256, 256], lin_neurons=256)


def crdnn() -> nn.Module:
    from speechbrain.lobes.models.CRDNN import CRDNN
    from speechbrain.nnet.RNN import LSTM

    shape = [None, None, 40]
    return CRDNN(input_shape=shape, time_pooling=True, time_pooling_size=4, rnn_class=LSTM, rnn_neurons=1024)


def crdnn_light_gru() -> nn.Module:
    from speechbrain.lobes.models.CRDNN import CRDNN

    return CRDNN(input_shape=[None, None, 40], rnn_layers=4, rnn_neurons=512)


def contextnet() -> nn.Module:
    from speechbrain.lobes.models.ContextNet import ContextNet

    return ContextNet(input_shape=[None, None, 80])


def hifigan() -> nn.Module:
    from speechbrain.lobes.models.HifiGAN import HifiganGenerator

    return HifiganGenerator(80, 1, "1", [[1, 3, 5]] * 3, [3, 7, 11], [16, 16, 4, 4], 512, [8, 8, 2, 2])


def cnn14() -> nn.Module:
    from speechbrain.lobes.models.Cnn14 import Cnn14

    return Cnn14(mel_bins=80, emb_dim=2048)


def metricgan_generator() -> nn.Module:
    from speechbrain.lobes.models.MetricGAN import EnhancementGenerator

    return FullLength(EnhancementGenerator(257, 200, 2), relative=True)


def transformer_lm() -> nn.Module:
    from speechbrain.lobes.models.transformer.TransformerLM import TransformerLM

    return TransformerLM(5000, d_model=768, nhead=12, num_encoder_layers=12, d_ffn=3072, activation=nn.GELU)


def rnn_lm() -> nn.Module:
    from speechbrain.lobes.models.RNNLM import RNNLM

    return RNNLM(1000, embedding_dim=128, rnn_neurons=2048, dnn_neurons=512)


def recogniser(width: int, channels: list[int], kernels: list[int], strides: list[int], **settings: Any) -> nn.Module:
    from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
    from speechbrain.lobes.models.transformer.TransformerASR import TransformerASR

    last = [False, False, True][: len(channels)]
    front = ConvolutionFrontEnd((8, 10, 80), len(channels), 1, channels, kernels, strides, [1] * 3, last)
    transformer = TransformerASR(5000, channels[-1] * 20, width, causal=False, **settings)
    return Recogniser(front, transformer, 5000, width)


def conformer_asr() -> nn.Module:
    layers = {"num_encoder_layers": 12, "num_decoder_layers": 4, "nhead": 4, "d_ffn": 1024}
    kind = {"encoder_module": "conformer", "attention_type": "RelPosMHAXL", "normalize_before": True}
    return recogniser(144, [64, 32], [3, 3], [2, 2], activation=nn.GELU, **layers, **kind)


def transformer_asr() -> nn.Module:
    layers = {"num_encoder_layers": 12, "num_decoder_layers": 6, "nhead": 8, "d_ffn": 3072}
    return recogniser(768, [64, 64, 64], [5, 5, 1], [2, 2, 1], activation=nn.GELU, **layers)


def branchformer_asr() -> nn.Module:
    layers = {"num_encoder_layers": 18, "num_decoder_layers": 6, "nhead": 8, "csgu_linear_units": 3072}
    kind = {"encoder_module": "branchformer", "attention_type": "RelPosMHAXL", "normalize_before": True}
    return recogniser(512, [64, 32], [3, 3], [2, 2], activation=nn.GELU, **layers, **kind)


def from_torchaudio(name: str, *settings: Any, **named: Any) -> nn.Module:
    from torchaudio import models

    return getattr(models, name)(*settings, **named)


def torchaudio_conv_tasnet() -> nn.Module:
    return from_torchaudio("conv_tasnet_base", 2)


def torchaudio_conformer() -> nn.Module:
    return FullLength(from_torchaudio("Conformer", 256, 4, 1024, 16, 31))


def torchaudio_emformer() -> nn.Module:
    return FullLength(from_torchaudio("Emformer", 512, 8, 2048, 20, 16, right_context_length=4))


def emformer_rnnt() -> nn.Module:
    return Transducer(from_torchaudio("emformer_rnnt_base", 4097))


def wavernn() -> nn.Module:
    return from_torchaudio("WaveRNN", [5, 5, 8], 512, 200)


def wav2letter() -> nn.Module:
    return from_torchaudio("Wav2Letter", 40, "waveform", 1)


def deepspeech() -> nn.Module:
    return from_torchaudio("DeepSpeech", 80)


def wav2vec2_base() -> nn.Module:
    return from_torchaudio("wav2vec2_base", aux_num_out=29)


def wavlm_base() -> nn.Module:
    return from_torchaudio("wavlm_base")


def tacotron2() -> nn.Module:
    return Speaker(from_torchaudio("Tacotron2"))


def squim_objective() -> nn.Module:
    return from_torchaudio("squim_objective_base")
