"""Kinds of aten calls in the IR, and the attributes that the cost formulas need."""

from __future__ import annotations

from typing import Any

from forerun.graph.op_names import NORM_TYPES, POOLS, RESIZES, SCANS

#: Kind -> its aten calls.
_BY_KIND: dict[str, str] = {
    "softmax": "_softmax _log_softmax _safe_softmax",
    "softmax_backward": "_softmax_backward_data _log_softmax_backward_data",
    "norm": "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit cudnn_batch_norm "
            "_native_batch_norm_legit_no_training _batch_norm_with_update _fused_rms_norm batch_norm_stats "
            "_batch_norm_no_update _weight_norm_interface",
    "norm_backward": "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward "
                     "batch_norm_backward cudnn_batch_norm_backward _fused_rms_norm_backward "
                     "_weight_norm_interface_backward",
    "embedding": "embedding _embedding_bag _embedding_bag_forward_only",
    "embedding_backward": "embedding_dense_backward _embedding_bag_backward _embedding_bag_dense_backward",
    "gather": "index_select gather index take take_along_dim _unsafe_index masked_select nonzero bucketize "
              "searchsorted",
    "scatter": "index_put index_put_ _unsafe_index_put index_add index_add_ index_copy index_copy_ scatter scatter_ "
               "scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_fill index_fill_ masked_scatter "
               "slice_scatter select_scatter slice_backward select_backward gather_backward index_reduce "
               "_index_put_impl_ histc bincount max_unpool2d max_unpool3d",
    "sort": "sort topk argsort unique_dim _unique2 unique_consecutive kthvalue median multinomial nms",
    "reduce": "sum mean max min amax amin argmax argmin var std var_mean std_mean norm linalg_vector_norm cumsum "
              "cumprod prod any all logsumexp nll_loss_forward nll_loss2d_forward nll_loss_backward "
              "nll_loss2d_backward mse_loss smooth_l1_loss aminmax count_nonzero nansum cummax cummin trace "
              "_foreach_norm logcumsumexp is_nonzero equal dist _cdist_forward _cdist_backward "
              "binary_cross_entropy _is_all_true _is_any_true",
    "pool": "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d "
            "max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d adaptive_max_pool3d avg_pool1d max_pool1d "
            "max_pool2d fractional_max_pool2d adaptive_avg_pool1d unfold im2col",
    "pool_backward": "max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward "
                     "adaptive_max_pool2d_backward max_pool3d_with_indices_backward avg_pool3d_backward "
                     "_adaptive_avg_pool3d_backward col2im unfold_backward adaptive_max_pool3d_backward "
                     "fractional_max_pool2d_backward",
    "resize": "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d "
              "upsample_trilinear3d upsample_linear1d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
              "_upsample_nearest_exact2d _upsample_nearest_exact1d grid_sampler_2d grid_sampler_3d "
              "upsample_nearest2d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward "
              "_upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward grid_sampler_2d_backward "
              "upsample_linear1d_backward upsample_trilinear3d_backward upsample_nearest1d_backward "
              "upsample_nearest3d_backward _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward "
              "_upsample_nearest_exact3d _upsample_nearest_exact3d_backward grid_sampler_3d_backward roi_align "
              "roi_align_backward",
    "copy": "cat stack clone _to_copy copy_ contiguous constant_pad_nd reflection_pad1d reflection_pad2d repeat "
            "replication_pad1d replication_pad2d roll flip tril triu rot90 repeat_interleave pixel_shuffle tril_ "
            "pixel_unshuffle channel_shuffle _foreach_copy_ expand_copy view_copy permute_copy native_channel_shuffle "
            "reflection_pad2d_backward replication_pad2d_backward _pin_memory diag_embed copy unfold_copy "
            "replication_pad3d index_select_backward split_with_sizes_copy block_diag reflection_pad1d_backward "
            "replication_pad1d_backward replication_pad3d_backward reflection_pad3d reflection_pad3d_backward "
            "_pack_padded_sequence",
    "fill": "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange linspace fill_ zero_ "
            "scalar_tensor eye fill zero range tril_indices triu_indices new_empty_strided logspace hann_window",
    "random": "rand randn randint rand_like randn_like bernoulli bernoulli_ native_dropout normal normal_ uniform_ "
              "uniform randperm randint_like exponential_ random_ poisson",
    "fft": "_fft_r2c _fft_c2r _fft_c2c",
    "matmul": "mm addmm bmm baddbmm addbmm mv addmv dot vdot _scaled_mm linear matmul addmm_ _int_mm "
              "_addmm_activation",
    "conv": "convolution _convolution convolution_overrideable",
    "conv_backward": "convolution_backward",
    # Ops of graph.torch_modes.
    **{kind: kind for kind in "attention moe_matmul moe_matmul_backward rnn rnn_backward".split()},
    "attention_backward": "attention_backward attention_mask_backward",
    # One pass and about one operation per element.
    "elementwise":
        "add sub mul div neg abs relu relu_ threshold threshold_backward gelu gelu_backward silu silu_ "
        "silu_backward sigmoid sigmoid_backward tanh tanh_backward exp log sqrt rsqrt pow sin cos erf erfinv "
        "clamp clamp_min clamp_max hardtanh hardtanh_backward hardswish hardswish_backward hardsigmoid "
        "hardsigmoid_backward leaky_relu leaky_relu_backward elu elu_backward mish mish_backward softplus "
        "softplus_backward where eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and "
        "bitwise_or bitwise_not bitwise_xor maximum minimum addcmul addcdiv lerp masked_fill reciprocal sign "
        "floor ceil round trunc remainder fmod floor_divide atan2 atan square log1p expm1 log2 log10 exp2 "
        "isnan isinf isfinite rsub _prelu_kernel _prelu_kernel_backward prelu glu glu_backward "
        "native_dropout_backward xlogy special_expm1 nan_to_num log_sigmoid_forward log_sigmoid_backward "
        "softshrink mse_loss_backward smooth_l1_loss_backward huber_loss binary_cross_entropy_with_logits "
        "fmax fmin bitwise_left_shift bitwise_right_shift bitwise_right_shift_ special_erf asinh acosh cosh "
        "sinh tan asin acos hypot _amp_update_scale_ dropout_backward complex polar view_as_real real imag "
        "angle conj_physical _conj_physical masked_scatter_backward infinitely_differentiable_gelu_backward "
        "rrelu_with_noise celu selu heaviside logit sinc sgn frac copysign special_log1p isin digamma lgamma "
        "addcmul_ addcdiv_ logaddexp deg2rad __and__ __or__ __xor__ __lshift__ __rshift__ gelu_ "
        "binary_cross_entropy_backward logical_not_ huber_loss_backward softshrink_backward hardshrink "
        "hardshrink_backward rrelu_with_noise_backward logit_backward",
}  # fmt: skip
#: aten call -> kind.
KIND_OF: dict[str, str] = {name: kind for kind, names in _BY_KIND.items() for name in names.split()}

#: aten calls that access no device memory: allocation and bookkeeping.
FREE = frozenset(
    "empty empty_like new_empty empty_strided detach alias lift_fresh lift_fresh_copy _local_scalar_dense "
    "is_same_size set_ resize_ record_stream _assert_async _assert_scalar sym_size sym_numel sym_stride "
    "_unsafe_view _reshape_alias is_pinned _has_compatible_shallow_copy_type _reshape_copy dim size stride "
    "unsafe_split unsafe_chunk unsafe_split_with_sizes as_strided_ squeeze_ unsqueeze_ transpose_ t_ swapaxes_ "
    "swapdims_".split()
)


def classify(name: str) -> str:
    """The IR kind of an aten call by its bare name; 'unknown' when it is not listed."""
    if name in KIND_OF:
        return KIND_OF[name]
    if name.startswith(("_foreach_", "_fused_adam", "_fused_sgd", "_amp_foreach")):
        return "optimizer"
    return KIND_OF.get(name.rstrip("_"), "unknown")


#: Matmuls whose second operand is shared by every row.
_SHARED_B = frozenset("mm addmm mv addmv linear dot _scaled_mm _int_mm _addmm_activation".split())


def attributes(kind: str, name: str, args: tuple[Any, ...], outputs: list[Any]) -> dict[str, Any]:
    """The attributes that the cost formulas read for this call (see graph/kinds.py)."""
    if kind == "conv":
        # convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
        return {"groups": args[8], "transposed": bool(args[6]), "stride": list(args[3]), "dilation": list(args[5])}
    if kind == "conv_backward":
        # convolution_backward(gy, x, w, bias_sizes, stride, padding, dilation, transposed, out_padding, groups, mask)
        return {"groups": args[9], "transposed": bool(args[7]), "stride": list(args[4]),
                "dilation": list(args[6]), "wants": list(args[10])}  # fmt: skip
    if kind in ("attention", "attention_backward"):
        return {"causal": bool(args[-1])}
    if kind in ("rnn", "rnn_backward"):
        cell, hidden, layers, directions, steps, _samples, proj, packed = args[-8:]
        more = {**({"proj": proj} if proj else {}), **({"packed": True} if packed else {})}
        return {"cell": cell, "hidden": hidden, "layers": layers, "directions": directions, "steps": steps, **more}
    if kind == "fft":  # (x, axes, ...)
        axes = sorted(int(a) % args[0].dim() for a in args[1])
        return {} if axes == [args[0].dim() - 1] else {"axes": axes}
    if kind == "moe_matmul":
        return {"experts": int(args[1].shape[0])}
    if kind == "norm":
        type_ = NORM_TYPES.get(name, "layer")
        training = bool(type_ == "batch" and len(args) > 5 and args[5] is True)
        return {"type": type_, "training": training} | ({"groups": args[6]} if type_ == "group" else {})
    if name == "native_group_norm_backward":
        return {"groups": args[8]}
    if kind == "matmul":
        return {"shared_b": name in _SHARED_B}
    if kind == "pool":
        x, y = args[0], outputs[0]
        if POOLS.get(name) == "adaptive":
            return {"window": max(1, round(_spatial(x) / max(1, _spatial(y))))}
        kernel = args[1] if len(args) > 1 else 1
        return {"window": _prod(kernel) if isinstance(kernel, (list, tuple)) else int(kernel)}
    if name == "nms":  # (boxes[N, 4], scores): each box against half of the others, about 12 operations per pair
        return {"flops": max(10, 12 * int(args[0].shape[0]) // 8)}
    if name.startswith("roi_align"):  # four pixels for each of points x points places in a bin
        return {"taps": 4 * args[-1] ** 2}
    if kind == "resize":
        return {"taps": {"nearest": 1, "bicubic": 16}.get(RESIZES.get(name, ""), 4)}
    if "index_put" in name and len(args) > 3 and args[3]:  # index_put(x, indices, values, accumulate)
        return {"accumulate": True}
    if name in SCANS and len(args) > 1:
        return {"axis": int(args[1]) % max(1, args[0].dim())}
    return {}


def _prod(sizes: Any) -> int:
    total = 1
    for s in sizes:
        total *= int(s)
    return total


def _spatial(t: Any) -> int:
    return _prod(t.shape[2:])
