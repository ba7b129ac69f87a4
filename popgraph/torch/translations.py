"""ONNX forms of ATen operators that PyTorch's exporter has none for, or one without gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from onnx.defs import OpSchema
from onnxscript import values
from onnxscript.onnx_opset import opset20

from popgraph.support.errors import UnsupportedError

op: Any = opset20
aten = torch.ops.aten

Form = Callable[..., Any]


def batch_norm_training(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """
    Normalization by the statistics of the batch, and the next running statistics.

    PyTorch averages the variance divided by n - 1, ONNX the one divided by n.
    """
    weight, bias = _affine(x, weight, bias)
    if not training:
        y = op.BatchNormalization(x, weight, bias, running_mean, running_var, epsilon=eps)
        return y, *(op.Identity(one) for one in (running_mean, running_var) * 2)
    y, mean, variance = op.BatchNormalization(
        x, weight, bias, running_mean, running_var, epsilon=eps, momentum=0.0, training_mode=1
    )
    shape = x.shape
    count = math.prod(shape) // shape[1]
    unbiased = op.Mul(variance, op.Constant(value_float=count / max(count - 1, 1)))
    return (
        y,
        mean,
        variance,
        _mixed(running_mean, mean, momentum),
        _mixed(running_var, unbiased, momentum),
    )


def _affine(x: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """Scale and offset of each channel; 1 and 0 if a layer has none."""
    size = op.Constant(value_ints=[x.shape[1]])
    if weight is None:
        weight = op.Expand(op.CastLike(op.Constant(value_float=1.0), x), size)
    if bias is None:
        bias = op.Expand(op.CastLike(op.Constant(value_float=0.0), x), size)
    return weight, bias


def _mixed(old: Any, new: Any, momentum: float) -> Any:
    """(1 - momentum) * old + momentum * new."""
    kept = op.Mul(old, op.Constant(value_float=1 - momentum))
    return op.Add(kept, op.Mul(new, op.Constant(value_float=momentum)))


def batch_norm_model(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """ONNX's own normalization, whose running statistics a trainer updates."""
    if not training:
        return batch_norm_training(
            x, weight, bias, running_mean, running_var, training, momentum, eps
        )
    weight, bias = _affine(x, weight, bias)
    y, mean, variance = op.BatchNormalization(
        *(x, weight, bias, running_mean, running_var),
        epsilon=eps,
        momentum=1 - momentum,
        training_mode=1,
    )
    return y, op.Identity(running_mean), op.Identity(running_var), mean, variance


FLOATS = ["tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"]

_detach = values.Op(
    values.Opset("ai.graphcore", 1),
    "Detach",
    OpSchema(
        "Detach",
        "ai.graphcore",
        1,
        inputs=[OpSchema.FormalParameter("x", "T")],
        outputs=[OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", FLOATS, "")],
    ),
)


def detach(x: Any) -> Any:
    """A value that no gradient passes; the exporter's form lets it pass."""
    return _detach(x) if f"tensor({x.dtype.name.lower()})" in FLOATS else op.Identity(x)


def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scaled: bool = False, sparse: bool = False
) -> Any:
    """Rows of a table; the row `padding_idx` has no gradient, which the exporter ignores."""
    rows = op.Gather(weight, indices)
    if padding_idx < 0:
        return rows
    padded = op.Equal(indices, op.CastLike(op.Constant(value_int=padding_idx), indices))
    axis = op.Constant(value_ints=[-1])
    return op.Where(op.Unsqueeze(padded, axis), _detach(rows), rows)


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Scaled dot-product attention that drops weights: the exporter's own form ignores dropout."""
    if enable_gqa:
        raise UnsupportedError(
            "grouped-query attention with dropout has no form in ONNX",
            hint="repeat keys and values for all heads, or set dropout_p=0",
        )
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    axes = [*range(len(key.shape) - 2), len(key.shape) - 1, len(key.shape) - 2]
    factors = op.CastLike(op.Constant(value_float=factor), query)
    scores = op.MatMul(op.Mul(query, factors), op.Transpose(key, perm=axes))
    if is_causal:
        size = op.Constant(value_ints=[query.shape[-2], key.shape[-2]])
        ones = op.Expand(op.Constant(value_int=1), size)
        scores = _masked(scores, op.Cast(op.Trilu(ones, upper=0), to=BOOL))
    elif attn_mask is not None and attn_mask.dtype == BOOL:
        scores = _masked(scores, attn_mask)
    elif attn_mask is not None:
        scores = op.Add(scores, attn_mask)
    ratio, true = op.Constant(value_float=dropout_p), op.Cast(op.Constant(value_int=1), to=BOOL)
    weights, _ = op.Dropout(op.Softmax(scores, axis=-1), ratio, true)
    return op.MatMul(weights, value)


BOOL = 9
"""ONNX's number of the element type bool."""


def _masked(scores: Any, kept: Any) -> Any:
    """Scores of minus infinity where `kept` is false."""
    return op.Where(kept, scores, op.CastLike(op.Constant(value_float=-math.inf), scores))


STEP: Mapping[Any, Form] = {
    aten._native_batch_norm_legit_functional.default: batch_norm_training,
    aten.detach.default: detach,
    aten.embedding.default: embedding,
}
"""The forms for a forward pass that is differentiated here, and whose buffers PyTorch holds."""

MODEL: Mapping[Any, Form] = {
    **STEP,
    aten._native_batch_norm_legit_functional.default: batch_norm_model,
}
"""The forms for a model that is handed over with its weights."""


def forms_of(graph: torch.fx.Graph, usual: Mapping[Any, Form]) -> Mapping[Any, Form]:
    """The forms for a graph: `usual`, and attention if the graph drops some of its weights."""
    scaled = aten.scaled_dot_product_attention.default
    drops = any(
        node.target is scaled and (node.kwargs.get("dropout_p") or (node.args[4:5] or [0])[0])
        for node in graph.nodes
    )
    return {**usual, scaled: attention} if drops else usual
