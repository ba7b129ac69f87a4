"""Normalization of ONNX graphs: inlines functions, expands operators that schemas define."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from popgraph.dialects.onnx.annotations import set_attribute
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.attributes import SparseTensorAttr, TensorAttr
from popgraph.dialects.onnx.containers import Function, Model, model_of
from popgraph.dialects.onnx.custom import GRADIENT, Custom
from popgraph.dialects.onnx.expansion import inline, inline_branch, schema_function
from popgraph.dialects.onnx.functions import function_of
from popgraph.dialects.onnx.inference import Inference, taken_branch
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.program import WeightStore
from popgraph.operators.record import IN_BYTES, MICROSOFT, is_lowered
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.onnx.enclose_gradients import enclose_gradients
from popgraph.passes.onnx.index_bounds import insert_checks
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.passes.options import CONSTANT, FLOAT, INT8, Options
from popgraph.passes.properties import ENCLOSED, INLINED
from popgraph.support.index_checks import ERROR
from popgraph.support.names import hint

Keep = Callable[[OnnxOp], bool]


@dataclass(frozen=True)
class Normalize(Pass):
    """
    y = Softsign(x)  ->  y = Div(x, Add(1, Abs(x))); the same for functions of the model.

    Only for operators without a lowering of their own. An If with a constant condition becomes the
    branch that it takes. Values keep their names; new values are named after their operator. The
    result may contain operators of later versions than the model imports. `indices`: run-time

    indices are checked ("error") or clamped ("nearest"). `weights`: float initializers are
    "constant", or "variable" and decide no If. `exact`: bodies avoid rounding, for gradients.
    `activations`: "int8" gives every MatMulNBits an `accuracy_level` of 4.
    """

    name = "normalize"
    GIVES = (ENCLOSED, INLINED)

    indices: str = ERROR
    weights: str = CONSTANT
    exact: bool = False
    activations: str = FLOAT

    @classmethod
    def of(cls, options: Options) -> Normalize:
        exact = options.training is not None
        return cls(options.indices or ERROR, options.weights, exact, options.activations)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        if self.activations == INT8:
            admit_bytes(module, compilation.weights)
        normalize(
            module,
            is_lowered,
            compilation.weights,
            self.indices == ERROR,
            self.weights,
            self.exact,
        )


def normalize(
    module: ModuleOp,
    keep: Keep,
    store: WeightStore,
    checked: bool = False,
    weights: str = CONSTANT,
    exact: bool = False,
) -> None:
    """The pass as a function; `keep` selects operators that are not expanded."""
    enclose_gradients(module)
    model = model_of(module)
    inference = infer_shapes(module, store, weights)
    _Expansion(model, keep, store, inference, checked, exact).expand(model.graph.block)
    for function in model.functions.values():
        function.detach()
        function.erase()


def admit_bytes(module: ModuleOp, store: WeightStore) -> None:
    """Sets the `accuracy_level` of every MatMulNBits to the one that quantizes activations."""
    for op in module.walk():
        if isinstance(op, Custom) and (op.domain, op.op_type) == (MICROSOFT, "MatMulNBits"):
            name = "accuracy_level"
            set_attribute(op, name, from_python(name, IN_BYTES, None, store), store)


@dataclass
class _Expansion:
    model: Model
    keep: Keep
    store: WeightStore
    inference: Inference
    checked: bool
    """Whether to check run-time indices."""
    exact: bool
    trusted: set[Operation] = field(default_factory=set)
    """Bodies of operators whose indices are checked: their own indices derive from these."""

    def expand(self, block: Block) -> None:
        """Expands a block, graphs inside its nodes, and the bodies that replace nodes."""
        pending = list(reversed(list(block.ops)))
        while pending:
            op = pending.pop()
            if not isinstance(op, OnnxOp):
                continue
            is_constant = op.op_type == "Constant" and op.domain == ""
            # Lowering handles Constant itself and must see the difference: training changes
            # initializers, but not constants.
            if is_constant and isinstance(op, SchemaOp) and not self.keep(op):
                constant_to_initializer(op, self.store, self.inference)
                continue
            if isinstance(op, SchemaOp) and op.op_type == "If" and op.domain == "":
                branch = taken_branch(self.inference, op)
                if branch is not None:
                    pending.extend(reversed(inline_branch(op, branch, self.inference)))
                    continue
            trusted = self.check_indices(op)
            function = self.meaning(op)
            if function is not None:
                made = inline(op, function, self.inference)
                self.trusted.update(made if trusted else ())
                pending.extend(reversed(made))
                continue
            outside = self.inference.lenient, self.exact
            # A branch that is never taken may have contradicting types.
            self.inference.lenient |= op.op_type == "If"
            self.exact |= (op.domain, op.op_type) == GRADIENT
            for graphs in op.graphs().values():
                for graph in graphs:
                    self.expand(graph.block)
            self.inference.lenient, self.exact = outside

    def check_indices(self, op: OnnxOp) -> bool:
        """Checks a node's indices; returns whether its body needs no more checks."""
        if not self.checked or op in self.trusted:
            return op in self.trusted
        return insert_checks(op, self.inference)

    def meaning(self, op: OnnxOp) -> Function | None:
        """The function that replaces a node; None if the node stays."""
        if isinstance(op, Custom):
            return function_of(op, self.model.functions, exact=self.exact)
        if self.keep(op):
            return None
        assert isinstance(op, SchemaOp)
        return schema_function(op, self.model.opset_versions, self.store)


_ELEMENTS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.object_,
    "value_strings": np.object_,
}


def constant_to_initializer(op: SchemaOp, store: WeightStore, inference: Inference) -> Initializer:
    """
    `y = Constant() {value}`  ->  `y = Initializer value`

    The value may be in any of the attributes of Constant.
    """
    ((key, held),) = op.onnx_attributes().items()
    if not isinstance(held, TensorAttr | SparseTensorAttr):
        value = op.attribute_values(store)[key]
        held = from_value(np.array(value, _ELEMENTS[key]), store)
    name = next(iter(op.output_names))
    made = Initializer(name, held)
    insert_made_for(op, made)
    inference.visit(made)
    op.results[0].replace_all_uses_with(made.result)
    made.result.name_hint = hint(name)
    op.detach()
    op.erase()
    return made
