"""Names of layers and functions of other frameworks, and the ONNX operators that compute them."""

from __future__ import annotations

import re

from popgraph.support.names import normalized

OPERATORS = {
    "Abs": "absolute",
    "Attention": "multi_head_attention scaled_dot_product_attention self_attention sdpa",
    "AveragePool": "avg_pool",
    "BatchNormalization": "batch_norm",
    "Cast": "as_type to",
    "Clip": "clamp relu6 hardtanh",
    "Concat": "cat concatenate stack hstack vstack",
    "ConstantOfShape": "zeros ones full zeros_like ones_like full_like",
    "Conv": "convolution",
    "Conv with `group`": "depthwise_conv separable_conv",
    "ConvTranspose": "deconv conv_transpose",
    "CumSum": "cumulative_sum",
    "Div": "divide true_divide",
    "Equal": "eq",
    "Expand": "broadcast broadcast_to",
    "EyeLike": "eye identity_matrix",
    "GRU": "gru_cell",
    "Gather": "embedding index_select take",
    "GatherElements": "take_along_axis take_along_dim",
    "GlobalAveragePool": "adaptive_avg_pool global_avg_pool",
    "GlobalMaxPool": "adaptive_max_pool",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "LpNormalization": "normalize",
    "LSTM": "lstm_cell",
    "MatMul": "mm bmm dot",
    "Mul": "multiply times",
    "Neg": "negative",
    "Pow": "power",
    "RNN": "simple_rnn rnn_cell",
    "RMSNormalization": "rms_norm",
    "Range": "arange",
    "ReduceL2": "norm",
    "ReduceLogSumExp": "log_sum_exp",
    "ReduceMax": "amax any",
    "ReduceMin": "amin all",
    "ReduceProd": "prod",
    "Reshape": "view",
    "Resize": "interpolate bilinear upsampling",
    "Slice": "narrow",
    "SoftmaxCrossEntropyLoss": "cross_entropy cross_entropy_loss",
    "Split": "chunk unbind",
    "Sub": "subtract minus",
    "Tile": "repeat",
    "TopK": "sort argsort",
    "Transpose": "permute swap_axes move_axis rearrange",
    "Trilu": "tril triu",
    "Where": "masked_fill select",
    "`x @ w + b`": "dense linear fully_connected",
    "`x * Sigmoid(x)`": "silu",
    "`x * x`": "square",
    "`1 / Sqrt(x)`": "rsqrt",
}
"""{operator or expression: names elsewhere, in any case}; numbers of dimensions are left out."""

_MEANT = {normalized(name): one for one, names in OPERATORS.items() for name in names.split()}


def computed_by(name: str) -> str:
    """The operator or expression for a name of NumPy, PyTorch or Keras; "" if it is unknown."""
    plain = normalized(name)
    return _MEANT.get(plain) or _MEANT.get(re.sub(r"[123]d$", "", plain), "")
