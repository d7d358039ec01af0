"""What an op's own name says about how it runs, where its kind leaves that open. Names are matched whole.

The names are those of aten without overload and in-place mark (`base_name`), and the op types of ONNX.
"""

from __future__ import annotations


def base_name(name: str) -> str:
    """'aten::add_.Tensor' -> 'add_': without namespace and overload; the in-place mark stays."""
    return name.split("::")[-1].split(".")[0]


def plain_name(name: str) -> str:
    """'aten::add_.Tensor' -> 'add': the in-place form does the same work."""
    return base_name(name).removesuffix("_")


def in_place(name: str) -> bool:
    """Whether an aten call writes into its first input: `add_`, but not `__and__`."""
    base = base_name(name)
    return base.endswith("_") and not base.endswith("__")


def _names(**groups: str) -> dict[str, str]:
    return {name: group for group, names in groups.items() for name in names.split()}


#: Elementwise ops of more than an instruction or two an element: what they compute shows beside what they move.
HEAVY = frozenset(
    "acos acosh asin asinh binary_cross_entropy_with_logits cos cosh erf erfinv exp exp2 expm1 gelu gelu_backward "
    "hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward "
    "infinitely_differentiable_gelu_backward log log10 log1p log2 log_sigmoid_backward log_sigmoid_forward logaddexp "
    "logit mish mish_backward pow sigmoid sigmoid_backward silu silu_backward sin sinc sinh softplus softplus_backward "
    "special_erf special_expm1 special_log1p tanh tanh_backward xlogy "
    "Acos Acosh Asin Asinh Atanh BiasGelu BiasSplitGelu Cos Cosh Erf Erfc Exp FastGelu Gelu HardSigmoid HardSwish Log "
    "Mish Pow QLinearSigmoid QuickGelu Sigmoid Sin Sinh Softplus Swish Tanh".split()
)
#: Which norm a call is. What is not listed (a weight norm) runs along the last dimension, as a layer norm does.
NORM_TYPES = _names(
    batch="native_batch_norm _native_batch_norm_legit cudnn_batch_norm _native_batch_norm_legit_no_training "
    "_batch_norm_with_update batch_norm_stats _batch_norm_no_update native_batch_norm_backward batch_norm_backward "
    "cudnn_batch_norm_backward",
    layer="native_layer_norm native_layer_norm_backward",
    group="native_group_norm native_group_norm_backward",
    rms="_fused_rms_norm _fused_rms_norm_backward",
)
#: Copies that run otherwise than a clone does.
COPIES = _names(
    cat="cat Concat ConcatFromSequence QLinearConcat",
    cast="_to_copy Cast CastLike",
    pad="constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad2d_backward replication_pad1d "
    "replication_pad2d replication_pad2d_backward replication_pad3d reflection_pad1d_backward "
    "replication_pad1d_backward replication_pad3d_backward reflection_pad3d reflection_pad3d_backward Pad "
    "CenterCropPad",
)
#: Scatters whose index names whole rows.
INDEXED = frozenset("index_add index_put _index_put_impl _unsafe_index_put index_copy index_fill".split())
#: Gathers whose index names whole rows.
ROW_GATHERS = frozenset("index_select index _unsafe_index".split())
#: Reductions that keep every partial result.
SCANS = frozenset("cumsum cumprod cummax cummin logcumsumexp CumSum".split())
#: Pools that are not max-pools.
POOLS = _names(
    avg="avg_pool1d avg_pool2d avg_pool3d AveragePool QLinearAveragePool",
    adaptive="adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d "
    "adaptive_max_pool3d GlobalAveragePool GlobalMaxPool GlobalLpPool QLinearGlobalAveragePool",
)
#: Resizes that are not (bi)linear.
RESIZES = _names(
    nearest="upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_nearest2d_backward "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d upsample_nearest1d_backward upsample_nearest3d_backward "
    "_upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d "
    "_upsample_nearest_exact3d_backward",
    bicubic="upsample_bicubic2d upsample_bicubic2d_backward _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward",
)
