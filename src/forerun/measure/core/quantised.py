"""Linear layers with 8-bit or 4-bit weights, by PyTorch's kernels or bitsandbytes; everything else stays bf16."""

from __future__ import annotations

from typing import Any

#: `nf4` and `llm_int8` are the formats of bitsandbytes, which transformers loads with load_in_4bit and load_in_8bit.
BITSANDBYTES = ("nf4", "llm_int8")
DTYPES = ("int8", "int4", *BITSANDBYTES)
ACTIVATIONS = "bf16"
GROUP = 128  # 4-bit weights that share a scale
INNER_TILES = 8


def quantise(model: Any, dtype: str) -> str:
    """Replaces every linear layer except a tied output layer; returns the name of the kernel.

    The weights are random, since only time, memory and energy are measured.
    """
    from torch import nn

    tied = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    chosen = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear) and id(child.weight) not in tied and _fits(child, dtype)
    ]
    how = "nothing"
    for parent, name, child in chosen:
        layer, how = _layer(child, dtype)
        setattr(parent, name, layer)
    return how


def _fits(layer: Any, dtype: str) -> bool:
    if dtype != "int4":
        return dtype == "int8" or layer.in_features % 64 == 0  # 64 values share a scale in nf4
    return bool(layer.in_features % (16 * INNER_TILES) == 0 and layer.out_features % 16 == 0)


def _layer(linear: Any, dtype: str) -> tuple[Any, str]:
    import torch
    from torch import nn

    n, k, device, bias = linear.out_features, linear.in_features, linear.weight.device, linear.bias
    kernel, how, weight, scales = _packed(dtype, n, k, device)

    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", weight)
            self.register_buffer("scales", scales)
            self.bias = bias  # not linear.bias: a reference to the layer would keep its weights alive

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = kernel(x.reshape(-1, k).contiguous(), self.weight, self.scales).reshape(*x.shape[:-1], n)
            return y if self.bias is None else y + self.bias

    return Quantised(), how


def matmul(x: Any, n: int, dtype: str) -> Any:
    """A call that multiplies `x` by a packed weight with `n` outputs."""
    kernel, _, weight, scales = _packed(dtype, n, x.shape[1], x.device)
    return lambda: kernel(x, weight, scales)


def _packed(dtype: str, n: int, k: int, device: Any) -> tuple[Any, str, Any, Any]:
    """The device's kernel for n x k weights in `dtype`, its name, the weights and their scales."""
    from . import meters

    packer = meters.class_of_device(device.type).weight_packers.get(dtype)
    if packer is None:
        raise ValueError(f"no kernel for {dtype} weights is known on {device.type}")
    return packer(n, k, device)


def _int8(n: int, k: int, device: Any) -> tuple[Any, Any]:
    import torch

    weight = torch.randint(-128, 128, (n, k), dtype=torch.int8, device=device)
    return weight, torch.full((n,), 2e-4, dtype=torch.bfloat16, device=device)


def int8_rows(n: int, k: int, device: Any) -> tuple[Any, str, Any, Any]:
    """PyTorch's int8 kernel, which is fast on a CPU."""
    import torch

    return torch._weight_int8pack_mm, "torch._weight_int8pack_mm", *_int8(n, k, device)


def int8_cast(n: int, k: int, device: Any) -> tuple[Any, str, Any, Any]:
    """Weights cast in each call, which on CUDA is several times faster than torch._weight_int8pack_mm."""
    import torch

    def unpacked(x: Any, w: Any, s: Any) -> Any:
        return torch.nn.functional.linear(x, w.to(x.dtype)) * s

    return unpacked, "int8 weights cast to bf16 in each call", *_int8(n, k, device)


def _int4_scales(n: int, k: int, device: Any) -> Any:
    import torch

    return torch.full((k // GROUP, n, 2), 2e-3, dtype=torch.bfloat16, device=device)


def int4_tiles(n: int, k: int, device: Any) -> tuple[Any, str, Any, Any]:
    """Two weights per byte, tiled for the tensor cores of a GPU."""
    import torch

    scales = _int4_scales(n, k, device)
    nibbles = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=device)
    weight = torch._convert_weight_to_int4pack(nibbles, INNER_TILES)
    name = "torch._weight_int4pack_mm"
    return lambda x, w, s: torch._weight_int4pack_mm(x, w, GROUP, s), name, weight, scales


def int4_rows(n: int, k: int, device: Any) -> tuple[Any, str, Any, Any]:
    """Two weights per byte in row-major order, for a CPU."""
    import torch

    scales = _int4_scales(n, k, device)
    weights = torch.randint(0, 16, (n, k), dtype=torch.int32, device=device)
    weight = torch._convert_weight_to_int4pack_for_cpu(weights, 1)
    name = "torch._weight_int4pack_mm_for_cpu"
    return lambda x, w, s: torch._weight_int4pack_mm_for_cpu(x, w, GROUP, s), name, weight, scales


def nf4(n: int, k: int, device: Any) -> tuple[Any, str, Any, Any]:
    """bitsandbytes' 4-bit normal floats: one fused kernel for few rows, else unpacked before an ordinary matmul."""
    import bitsandbytes
    import torch

    plain = torch.randn((n, k), dtype=torch.bfloat16, device=device) * k**-0.5
    weight, state = bitsandbytes.functional.quantize_4bit(plain, quant_type="nf4")

    def multiply(x: Any, w: Any, s: Any) -> Any:
        return bitsandbytes.matmul_4bit(x, w.t(), quant_state=state)

    return multiply, f"bitsandbytes {bitsandbytes.__version__} nf4", weight, state.absmax


def llm_int8(n: int, k: int, device: Any) -> tuple[Any, str, Any, Any]:
    """LLM.int8() of bitsandbytes: activations are quantised row by row, columns with outliers stay in fp16."""
    import bitsandbytes
    import torch

    # Weights are quantised as they move from the host to the device.
    plain = (torch.randn((n, k), device=device) * k**-0.5).half().cpu()
    layer = bitsandbytes.nn.Linear8bitLt(k, n, bias=False, has_fp16_weights=False, threshold=6.0, device="meta")
    layer.weight = bitsandbytes.nn.Int8Params(plain, requires_grad=False, has_fp16_weights=False)
    layer = layer.to(device)

    def multiply(x: Any, w: Any, s: Any) -> Any:
        return layer(x)

    return multiply, f"bitsandbytes {bitsandbytes.__version__} LLM.int8()", layer.weight.data, layer.weight.SCB
