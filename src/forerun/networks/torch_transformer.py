"""PyTorch's own transformers: nn.TransformerEncoder, nn.Transformer, nn.MultiheadAttention with its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

ENCODER, BOTH, WEIGHTS = range(3)
VOCAB = 10000
CLASSES = 10


def _classifier(width: int, length: int, layers: Any) -> nn.Module:
    from torch import nn

    from forerun.networks.transformer_layers import Positions

    return nn.Sequential(
        nn.Embedding(VOCAB, width), Positions(length, width), layers, nn.Flatten(), nn.Linear(length * width, CLASSES)
    )


def _with_weights(width: int, heads: int, depth: int) -> nn.Module:
    from torch import nn

    class WithWeights(nn.Module):
        """Attention that also returns its weights, averaged over the heads, as for plots."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(depth))
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

        def forward(self, x: Tensor) -> Tensor:
            for layer, norm in zip(self.layers, self.norms, strict=True):
                attended, _ = layer(x, x, x, need_weights=True)
                x = norm(x + attended)
            return x

    return WithWeights()


def build(
    design: int, width: int, heads: int, depth: int, inner: int, length: int, norm_first: int, gelu: int
) -> nn.Module:
    """The network; it takes tokens (batch, length), nn.Transformer target tokens as well."""
    from torch import nn

    from forerun.networks.transformer_layers import Positions

    style: dict[str, Any] = {
        "dim_feedforward": inner, "dropout": 0.1, "activation": "gelu" if gelu else "relu", "batch_first": True,
        "norm_first": bool(norm_first),
    }  # fmt: skip
    if design == WEIGHTS:
        return _classifier(width, length, _with_weights(width, heads, depth))
    if design == ENCODER:
        layer = nn.TransformerEncoderLayer(width, heads, **style)
        return _classifier(width, length, nn.TransformerEncoder(layer, depth, enable_nested_tensor=False))

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCAB, width)
            self.positions = Positions(length, width)
            self.layers = nn.Transformer(width, heads, depth, depth, **style)
            self.head = nn.Linear(width, VOCAB)

        def forward(self, tokens: Tensor, decoder_tokens: Tensor) -> Tensor:
            source, target = (self.positions(self.embedding(t)) for t in (tokens, decoder_tokens))
            mask = nn.Transformer.generate_square_subsequent_mask(length, device=target.device, dtype=target.dtype)
            return self.head(self.layers(source, target, tgt_mask=mask, tgt_is_causal=True))

    return Translator()


def inputs(settings: Settings) -> dict[str, Input]:
    tokens = Input((settings["length"],), below=VOCAB)
    return {"tokens": tokens, "decoder_tokens": tokens} if settings["design"] == BOTH else {"": tokens}


def problem(settings: Settings) -> str | None:
    return "width must be a multiple of heads" if settings["width"] % settings["heads"] else None


FAMILY = Family(
    prefix="torch_transformer",
    kind="torch.nn transformer",
    settings={
        "design": Setting(0, 0, 2),  # 0 TransformerEncoder, 1 Transformer, 2 MultiheadAttention with its weights
        "width": Setting(256, 1, 8192),
        "heads": Setting(4, 1, 128),
        "depth": Setting(2, 1, 48),
        "inner": Setting(1024, 1, 65536),
        "length": Setting(128, 1, 8192),
        "norm_first": Setting(0, 0, 1),
        "gelu": Setting(0, 0, 1),  # else ReLU
    },
    build=build,
    inputs=inputs,
    always_named=("design", "width", "depth"),
    problem=problem,
)
