"""Evaluates nodes with constant inputs that no kernel computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.traits import Pure

from popgraph.dialects import element_types
from popgraph.dialects.onnx.containers import Model, model_of
from popgraph.dialects.onnx.evaluation import evaluate_node
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.operators.record import is_lowered
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.onnx.enclose_gradients import enclose_gradients
from popgraph.passes.onnx.partition import host_node
from popgraph.passes.options import VARIABLE, Options
from popgraph.passes.properties import ENCLOSED
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod

MOST_ELEMENTS = 1 << 20
"""Maximum size of each tensor: Python computes it, and the model's text contains it."""


@dataclass(frozen=True)
class EvaluateConstants(Pass):
    """
    `y = NonZero(Constant {a})`  ->  `y = Constant {nonzero(a)}`

    Only for pure nodes that have no kernel; fold-constants folds others, if that pays. If weights

    are `trained`, only integer and boolean initializers are constants.
    """

    name = "evaluate-constants"
    GIVES = (ENCLOSED,)
    trained: bool = False

    @classmethod
    def of(cls, options: Options) -> EvaluateConstants:
        return cls(options.weights == VARIABLE)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        enclose_gradients(module)  # Gradients name tensors, which evaluation may remove.
        evaluate_constants(module, compilation.weights, trained=self.trained)


def evaluate_constants(module: ModuleOp, store: WeightStore, *, trained: bool) -> None:
    """The pass as a function."""
    model = model_of(module)
    constants = Constants(model, store, trained)
    for op in list(model.graph.nodes):
        # Nodes without operands are constants already, or random.
        if isinstance(op, SchemaOp) and op.operands and not op.regions:
            has_body = bool(op.SCHEMA.all_function_opset_versions)
            if host_node(op) or not (has_body or is_lowered(op)):
                _replace(op, constants)


def _replace(op: OnnxOp, constants: Constants) -> None:
    """Replaces a node by constants if all its results are known tensors of numbers."""
    found = [constants.of(result) for result in op.results]
    there = [array for array in found if array is not None and array.dtype.kind not in "OUS"]
    if there and len(there) == len(found):
        replace_by_constants(op, there, constants.model, constants.store)


def replace_by_constants(
    op: OnnxOp, arrays: Sequence[Array], model: Model, store: WeightStore
) -> None:
    """Replaces a node by Constants with the elements of its results."""
    constant = op_class("Constant", model.opset_versions.get("", 1))
    for (result, name), array in zip(_named(op), arrays, strict=True):
        held = from_value(array, store)
        made = constant.make([], {"value": held}, {}, [name], [held.type], {})
        insert_made_for(op, made)
        made.results[0].name_hint = result.name_hint
        result.replace_all_uses_with(made.results[0])
    op.detach()
    op.erase()


def _named(op: OnnxOp) -> list[tuple[SSAValue, str]]:
    """The present results of a node, with their names."""
    pairs = zip(op.output_values(), op.output_names, strict=False)
    return [(value, name) for value, name in pairs if value is not None]


class Constants:
    """Values of a graph that depend on constants only, computed on request."""

    def __init__(self, model: Model, store: WeightStore, trained: bool) -> None:
        self.model, self.store, self.trained = model, store, trained
        self._known: dict[SSAValue, Array | None] = {}

    def of(self, value: SSAValue) -> Array | None:
        """The elements of a value; None if unknown or larger than `MOST_ELEMENTS`."""
        if value not in self._known:
            self._visit(value)
        return self._known[value]

    def _visit(self, value: SSAValue) -> None:
        """Evaluates a value after its operands, without recursion: chains may be long."""
        pending = [value]
        while pending:
            owner = pending[-1].owner
            waiting = [one for one in _operands(owner) if one not in self._known]
            if waiting:
                pending += waiting
                continue
            self._note(pending.pop())

    def _note(self, value: SSAValue) -> None:
        if value in self._known:
            return
        owner, self._known[value] = value.owner, None
        if isinstance(owner, Initializer):
            self._known[value] = self._of_initializer(owner)
        elif isinstance(owner, SchemaOp) and _may_be_evaluated(owner):
            given = {one: self._known[one] for one in owner.operands}
            found: Sequence[Any] = [None] * len(owner.results)
            if all(array is not None for array in given.values()):
                found = self._evaluated(owner, given)
            self._known.update(zip(owner.results, found, strict=True))

    def _of_initializer(self, op: Initializer) -> Array | None:
        is_fixed = op.input is None and not (self.trained and _is_float(op.result))
        return op.array(self.store) if is_fixed and not _is_large(op.result) else None

    def _evaluated(self, op: SchemaOp, given: dict[SSAValue, Any]) -> list[Array | None]:
        """The results of a node on constants; None for each if evaluation fails, as NumPy may."""
        nothing: list[Array | None] = [None] * len(op.results)
        try:
            found = evaluate_node(op, given, self.store, self.model.opset_versions)
        except Exception:
            return nothing
        if found is None:
            return nothing
        there = zip(op.output_values(), found, strict=False)
        arrays = [array for value, array in there if value is not None]
        return [
            array if isinstance(array, np.ndarray) and array.size <= MOST_ELEMENTS else None
            for array in arrays
        ]


def _operands(owner: object) -> Sequence[SSAValue]:
    """Operands to evaluate first; none for nodes that are not evaluated."""
    if isinstance(owner, SchemaOp) and _may_be_evaluated(owner):
        return owner.operands
    return ()


def _may_be_evaluated(op: SchemaOp) -> bool:
    """Whether a node is pure, has no graphs, and no result known to be large."""
    return op.has_trait(Pure) and not op.regions and not any(map(_is_large, op.results))


def _is_large(value: SSAValue) -> bool:
    shape = static_shape(value.type)
    return shape is not None and prod(shape) > MOST_ELEMENTS


def _is_float(value: SSAValue) -> bool:
    element = getattr(value.type, "element_type", None)
    if element is None or not element_types.is_number(element):
        return False
    return element_types.from_ir(element).is_float
