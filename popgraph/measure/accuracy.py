"""Reference results in double precision, and errors relative to them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import Float32Type, Float64Type, ModuleOp, TensorType
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from popgraph import compiler
from popgraph.backends.reference import evaluate
from popgraph.dialects.levels import level_of
from popgraph.dialects.program import BlobAttr, DataAttr, WeightStore
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.support.arrays import Array

WIDE = np.dtype(np.float64)


def exact(
    module: ModuleOp, compilation: Compilation, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """
    The outputs of a float model for these inputs, computed in f64 by NumPy.

    Floats are widened at the graphcore level, before any pass rearranges arithmetic, and the
    reference backend runs the result: no kernel, schedule or C compiler is involved.
    """
    wide = module.clone()
    if level_of(wide) == "onnx":
        compiler.lower(wide, compilation, until=OnnxToGraphcore.name)
    widen(wide, compilation.weights)
    wide_inputs = {name: as_wide(array) for name, array in inputs.items()}
    return evaluate(wide, wide_inputs, compilation.weights)[0]


def as_wide(array: Array) -> Array:
    return array.astype(WIDE) if array.dtype == np.float32 else array


def widen(module: ModuleOp, weights: WeightStore) -> None:
    """Converts every f32 of a graphcore module, types and literals, to f64."""
    for op in module.walk():
        for name, attribute in op.properties.items():
            op.properties[name] = _wide(attribute, weights)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.args:
                    Rewriter.replace_value_with_new_type(argument, _wide(argument.type, weights))
        for result in op.results:
            Rewriter.replace_value_with_new_type(result, _wide(result.type, weights))
    module.verify()


def _wide(attribute: Attribute, weights: WeightStore) -> Attribute:
    match attribute:
        case Float32Type():
            return Float64Type()
        case TensorType(element_type=Float32Type()):
            return TensorType(Float64Type(), attribute.get_shape())
        case DataAttr() | BlobAttr() if attribute.type.element_type == Float32Type():
            return weights.attribute(weights.array(attribute).astype(WIDE))
    return attribute


def error(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The largest difference of any output, relative to the largest element of that output."""
    return max((_error(found[name], wanted) for name, wanted in expected.items()), default=0.0)


def _error(found: Array, wanted: Array) -> float:
    if wanted.dtype != WIDE or not wanted.size:
        return 0.0
    scale = float(np.abs(wanted).max())
    return float(np.abs(found.astype(WIDE) - wanted.astype(WIDE)).max()) / (scale or 1.0)
