"""Interfaces: the values an open model needs from a call before it can be compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from popgraph.compiler.descriptions import spec
from popgraph.dialects.levels import level_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.types import (
    MapType,
    OpaqueType,
    OptType,
    SeqType,
    SparseType,
    describe,
    dims,
    static_shape,
)
from popgraph.dialects.program import WeightStore
from popgraph.open_model import Dimension, Interface
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.passes.onnx.structural_inputs import branching_inputs, structural_inputs
from popgraph.support.errors import (
    UnsupportedError,
)


def interface_of(
    module: ModuleOp, weights: WeightStore, known: Iterable[str] = ()
) -> Interface | None:
    """
    The interface of an open model; None if all shapes and structures are static.

    `known` are additional structural inputs, which operators do not require.
    """
    if level_of(module) != "onnx":
        return None
    types = input_types(module)
    is_static = all(static_shape(type_) is not None for type_ in types.values())
    if is_static and any(op.op_type == "If" for op in module.walk() if isinstance(op, OnnxOp)):
        infer_shapes(module, weights)  # What a reader believes of a branch need not be so.
    found = {*structural_inputs(module, weights), *known}
    structural = tuple(name for name in types if name in found)
    if is_static and not structural:
        return None
    branching = branching_inputs(module, weights)
    rows = tuple(spec(name, type_).row for name, type_ in types.items())
    return Interface(tuple(types), structural, branching, tuple(_unknown(types)), rows)


def _unknown(types: Mapping[str, Attribute]) -> Iterator[Dimension]:
    """The dimensions of inputs that only a call determines."""
    for name, type_ in types.items():
        for axis, size in enumerate(dims(type_) or ()):
            if not isinstance(size, int):
                yield name, axis, size or ""


def check_tensors(module: ModuleOp) -> None:
    """UnsupportedError for inputs that cannot be arrays."""
    for name, type_ in input_types(module).items():
        if isinstance(type_, SeqType | OptType | MapType | SparseType | OpaqueType):
            raise UnsupportedError(
                f"an input of type {describe(type_)} is not supported", f"input {name!r}"
            )
