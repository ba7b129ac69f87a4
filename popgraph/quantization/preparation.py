"""Prepares a model for quantization: folds normalizations into layers, raises the operator set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import SSAValue

from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.upgrade import upgraded
from popgraph.builder.onnx.write import export_model
from popgraph.compiler.loading import Model, load
from popgraph.dialects.graphcore.batch_norm import factor_and_shift
from popgraph.dialects.levels import level_of
from popgraph.dialects.onnx import OnnxOp, SchemaOp, model_of
from popgraph.dialects.onnx.attributes import OpsetAttr
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.outputs import drop_unused
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.quantization.editing import Editor, with_inputs
from popgraph.quantization.sites import (
    channel_axis,
    check_unquantized,
    is_constant,
    is_real,
    is_standard,
)
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError

COMMON_OPSET = 21
"""A set that runtimes support; older sets are left as they are."""


def prepared(model: Model, opset: int) -> tuple[ModuleOp, WeightStore]:
    """
    A copy of a model of at least this operator set, with its weights.

    Batch normalization after a convolution or Gemm is folded into its weights, and sums of two
    values become Add.
    """
    module, compilation = load(model)
    store = compilation.weights
    if level_of(module) != "onnx":
        raise ModelError(
            f"a module of the {level_of(module)} level cannot be quantized",
            hint="pass a model of the onnx level",
        )
    module, store = unquantized(module, store, opset)
    declare_oldest(module, opset)
    infer_shapes(module, store)
    fold_normalizations(module, store)
    add_pairs(module, store)
    return module, store


def add_pairs(module: ModuleOp, store: WeightStore) -> None:
    """Sum(a, b)  ->  Add(a, b), for which runtimes have integer kernels."""
    editor = Editor(module, store)
    for op in list(editor.graph.nodes):
        if is_standard(op, "Sum") and len(op.operands) == 2:
            (made,) = editor.node("Add", op.operands, f"{value_name(op.results[0])}_sum", op)
            editor.substitute(op, made)


def unquantized(module: ModuleOp, store: WeightStore, opset: int) -> tuple[ModuleOp, WeightStore]:
    """A model of floats of at least this operator set, with its weights."""
    editor = Editor(module, store)
    check_unquantized(editor.graph)
    if editor.opset >= opset:
        return module, store
    made = WeightStore()
    return import_model(upgraded(export_model(module, store), opset), made), made


def declare_oldest(module: ModuleOp, least: int) -> None:
    """
    Declares an older operator set, of at least this version, if it has the same operators.

    Texts have the newest set by default, for whose QuantizeLinear onnxruntime may have no kernel.
    """
    model = model_of(module)
    current = model.opset_versions.get("", 1)
    standard = [op for op in model.walk() if isinstance(op, SchemaOp) and not op.domain]
    oldest = max([least, COMMON_OPSET, *(op.since_version for op in standard)])
    if oldest < current and not model.functions:
        opsets = [one for one in model.opsets if one.domain.text]
        model.properties["opsets"] = ArrayAttr([OpsetAttr.of("", oldest), *opsets])


def fold_normalizations(module: ModuleOp, store: WeightStore) -> None:
    """
    batch_norm(conv(x, w) + b)  ->  conv(x, w * f) + (b * f + s)

    Only when the statistics and weights are constant, and nothing else reads the convolution.
    """
    editor = Editor(module, store)
    for op in list(editor.graph.nodes):
        if is_standard(op, "BatchNormalization") and op.since_version >= INFERENCE:
            _fold(editor, op)
    drop_unused(module, inputs=False)


INFERENCE = 9
"""The first BatchNormalization with one number per channel in every form."""


def _fold(editor: Editor, op: OnnxOp) -> None:
    x, *numbers = op.operands
    layer = x.owner
    if not isinstance(layer, OnnxOp) or not _can_absorb(op, layer, numbers):
        return
    inputs = layer.input_values()
    weight, bias = inputs[1], inputs[2] if len(inputs) > 2 else None
    assert weight is not None, "a layer has a weight"
    epsilon = op.attribute_values()["epsilon"]
    assert isinstance(epsilon, float)
    scale, shift, mean, variance = map(editor.array, numbers)
    factor, shift = factor_and_shift(scale, shift, mean, variance, epsilon)
    before: Array = np.zeros(()) if bias is None else editor.array(bias)
    wide, axis = editor.array(weight), channel_axis(layer, 1)
    shape = [1] * wide.ndim
    assert axis is not None, "checked by _can_absorb"
    shape[axis] = -1
    name = value_name(weight)
    folded = (wide * factor.reshape(shape)).astype(wide.dtype)
    added = (before * factor + shift).astype(wide.dtype)
    values = [inputs[0], editor.constant(f"{name}_folded", folded)]
    values.append(editor.constant(f"{name}_bias", added))
    made = with_inputs(layer, values)
    editor.substitute(op, made.results[0])


def _can_absorb(op: OnnxOp, layer: OnnxOp, numbers: Sequence[SSAValue]) -> bool:
    """Whether a layer can apply a batch normalization by its own weights."""
    if not is_standard(layer, "Conv", "ConvTranspose", "Gemm") or len(op.results) > 1:
        return False
    attributes = layer.attribute_values()
    if any(attributes.get(name, 1) != 1 for name in ("alpha", "beta")):
        return False
    constants = [one for one in (*layer.input_values()[1:], *numbers) if one is not None]
    return (
        all(is_real(one) and is_constant(one) for one in constants)
        and layer.results[0].has_one_use()
        and not op.attribute_values().get("training_mode")
        and channel_axis(layer, 1) is not None
    )
