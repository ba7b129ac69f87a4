"""Turns selections with constant conditions into lookups, which compile and train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.onnx.containers import model_of, value_name
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import UNKNOWN, dims
from popgraph.dialects.program import WeightStore
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.onnx.evaluate_constants import Constants
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.passes.options import VARIABLE, Options
from popgraph.passes.properties import ENCLOSED
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class SelectKnown(Pass):
    """
    `y = Compress(x, Constant {[0, 1, 1]})`  ->  `y = Gather(x, Constant {[1, 2]})`

    Without an axis, x becomes `Reshape(x, [-1])`. Only for element types that kernels support and

    indices in range. Lookups compile and have gradients. `trained` as in evaluate-constants.
    """

    name = "select-known"
    NEEDS = (ENCLOSED,)
    trained: bool = False

    @classmethod
    def of(cls, options: Options) -> SelectKnown:
        return cls(options.weights == VARIABLE)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        select_known(module, compilation.weights, trained=self.trained)


def select_known(module: ModuleOp, store: WeightStore, *, trained: bool) -> None:
    """The pass as a function."""
    model = model_of(module)
    constants = Constants(model, store, trained)
    known = [
        (op, condition)
        for op in model.graph.walk()
        if _is_compress(op) and (condition := constants.of(op.operands[1])) is not None
    ]
    if not known:
        return
    infer_shapes(module, store)
    for op, condition in known:
        assert isinstance(op, SchemaOp)
        (places,) = np.nonzero(condition)
        if _is_computed(op, places):
            _replace(op, places, model.opset_versions.get("", 1), store)


def _is_compress(op: object) -> bool:
    return isinstance(op, SchemaOp) and (op.domain, op.op_type) == ("", "Compress")


def _is_computed(op: SchemaOp, places: Array) -> bool:
    """Whether kernels can look up these indices; otherwise Python computes or refuses the node."""
    type_ = op.operands[0].type
    element, sizes = getattr(type_, "element_type", None), dims(type_)
    if element is None or sizes is None or not element_types.is_number(element):
        return False
    if element_types.from_ir(element).numpy.kind == "c":
        return False
    axis = _axis(op)
    chosen = sizes if axis is None else (sizes[axis],)
    known = [size for size in chosen if isinstance(size, int)]
    # For a size known at run time only, Python checks the range.
    return len(known) == len(chosen) and bool((places < prod(known)).all())


def _axis(op: SchemaOp) -> int | None:
    found = op.onnx_attributes().get("axis")
    return found.value.data if isinstance(found, IntegerAttr) else None


def _replace(op: SchemaOp, places: Array, version: int, store: WeightStore) -> None:
    name, source, given = value_name(op.results[0]), op.operands[0], dict(op.onnx_attributes())

    def constant(array: Array, what: str) -> SSAValue:
        held = from_value(array, store)
        return _node("Constant", version, op, [], f"{name}/{what}", held.type, value=held)

    if "axis" not in given:
        row = constant(np.array([-1]), "row_shape")
        source = _node("Reshape", version, op, [source, row], f"{name}/row", UNKNOWN)
    indices = constant(places.astype(np.int64), "places")
    found = _node("Gather", version, op, [source, indices], name, op.results[0].type, **given)
    found.name_hint = op.results[0].name_hint
    op.results[0].replace_all_uses_with(found)
    op.detach()
    op.erase()


def _node(
    kind: str,
    version: int,
    made_for: SchemaOp,
    inputs: Sequence[SSAValue],
    output: str,
    type_: Attribute,
    **attributes: Attribute,
) -> SSAValue:
    """Inserts a new node before `made_for`; returns its result."""
    made = op_class(kind, version).make(inputs, attributes, {}, [output], [type_], {})
    insert_made_for(made_for, made)
    return made.results[0]
