"""Networks of 1-D convolutions on audio: a wav2vec feature encoder, WaveNet, a temporal convolutional network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

WAV2VEC, WAVENET, TCN = range(3)
MELS = 80  # mel bands that a TCN reads
STEM = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))  # wav2vec 2.0: (kernel, stride)


def _wav2vec(width: int, depth: int, kernel: int, groups: int, layer_norm: int, classes: int) -> nn.Module:
    from torch import nn

    class Stem(nn.Module):
        """Seven strided convolutions on the waveform."""

        def __init__(self) -> None:
            super().__init__()
            widths = [1] + [width] * len(STEM)
            self.convs = nn.ModuleList(
                nn.Conv1d(widths[i], width, k, stride=s, bias=False) for i, (k, s) in enumerate(STEM)
            )
            first_only = [nn.GroupNorm(width, width), *(nn.Identity() for _ in STEM[1:])]
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in STEM] if layer_norm else first_only)

        def forward(self, x: Tensor) -> Tensor:
            for conv, norm in zip(self.convs, self.norms, strict=True):
                x = conv(x)
                x = norm(x.transpose(1, 2)).transpose(1, 2) if layer_norm else norm(x)
                x = nn.functional.gelu(x)
            return x

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = Stem()
            self.layers = nn.ModuleList(
                nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=groups) for _ in range(depth)
            )
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, classes)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x.unsqueeze(1))
            for layer in self.layers:
                x = x + nn.functional.gelu(layer(x))[..., : x.shape[-1]]
            return self.head(self.norm(x.transpose(1, 2)).mean(1))

    return Encoder()


def _wavenet(width: int, depth: int, kernel: int, groups: int, classes: int) -> nn.Module:
    import torch
    from torch import nn

    class Layer(nn.Module):
        """A gated, causal, dilated convolution with a residual and a skip output."""

        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.reach = (kernel - 1) * dilation
            self.conv = nn.Conv1d(width, 2 * width, kernel, dilation=dilation, groups=groups)
            self.out = nn.Conv1d(width, 2 * width, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            signal, gate = self.conv(nn.functional.pad(x, (self.reach, 0))).chunk(2, dim=1)
            residual, skip = self.out(torch.tanh(signal) * torch.sigmoid(gate)).chunk(2, dim=1)
            return x + residual, skip

    class WaveNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv1d(1, width, 1)
            self.layers = nn.ModuleList(Layer(2 ** (i % 10)) for i in range(depth))
            self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, classes, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x.unsqueeze(1))
            x, total = self.layers[0](x)
            for layer in self.layers[1:]:
                x, skip = layer(x)
                total = total + skip
            return self.head(total)

    return WaveNet()


def _tcn(width: int, depth: int, kernel: int, groups: int, classes: int) -> nn.Module:
    from torch import nn

    class Layer(nn.Module):
        """Two dilated convolutions with batch norm, around them a residual."""

        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.reach = (kernel - 1) * dilation
            self.first = nn.Conv1d(width, width, kernel, dilation=dilation, groups=groups, bias=False)
            self.second = nn.Conv1d(width, width, kernel, dilation=dilation, groups=groups, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm1d(width), nn.BatchNorm1d(width)])
            self.dropout = nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            y = x
            for conv, norm in zip((self.first, self.second), self.norms, strict=True):
                y = self.dropout(nn.functional.relu(norm(conv(nn.functional.pad(y, (self.reach, 0))))))
            return nn.functional.relu(x + y)

    return nn.Sequential(
        nn.Conv1d(MELS, width, 1),
        *(Layer(2 ** (i % 8)) for i in range(depth)),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )


def build(
    design: int, width: int, depth: int, kernel: int, groups: int, layer_norm: int, length: int, classes: int
) -> nn.Module:
    """The network; it takes a waveform (batch, length), a TCN mel features (batch, 80, length)."""
    if design == WAV2VEC:
        return _wav2vec(width, depth, kernel, groups, layer_norm, classes)
    if design == WAVENET:
        return _wavenet(width, depth, kernel, groups, classes)
    return _tcn(width, depth, kernel, groups, classes)


def inputs(settings: Settings) -> dict[str, Input]:
    length = settings["length"]
    return {"": Input((MELS, length) if settings["design"] == TCN else (length,))}


def problem(settings: Settings) -> str | None:
    if settings["width"] % settings["groups"]:
        return "width must be a multiple of groups"
    if settings["design"] == WAV2VEC and settings["length"] < 400:
        return "the wav2vec encoder (design=0) needs length=400 or more"
    return None


FAMILY = Family(
    prefix="speech_cnn",
    kind="1-D convolutional",
    settings={
        "design": Setting(0, 0, 2),  # 0 wav2vec feature encoder, 1 WaveNet, 2 temporal convolutional network
        "width": Setting(128, 8, 4096),
        "depth": Setting(4, 1, 100),
        "kernel": Setting(3, 1, 129),
        "groups": Setting(1, 1, 4096),
        "layer_norm": Setting(0, 0, 1),  # of the wav2vec encoder: after every convolution, not the first alone
        "length": Setting(4000, 16, 1000000),
        "classes": Setting(32, 2, 4096),
    },
    build=build,
    inputs=inputs,
    always_named=("design", "width", "depth"),
    problem=problem,
)
