"""Normalization of ONNX graphs: inlines functions, expands operators that schemas define."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

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
from popgraph.operators.record import is_lowered
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.onnx.enclose_gradients import enclose_gradients
from popgraph.passes.onnx.index_bounds import insert_checks
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.passes.options import CONSTANT, Options
from popgraph.support.index_checks import ERROR
from popgraph.support.names import hint

Keep = Callable[[OnnxOp], bool]


@dataclass(frozen=True)
class Normalize(Pass):
    """
    Functions of the model and operators that ONNX defines by others become those others.

    Operators that lowering knows stay whole. An If whose condition is known becomes the branch
    that it takes. Values keep their names; what is new inside an operator is named after it. The
    result is for lowering: it may hold operators of later versions than the model imports.

    `indices`: those that data brings are checked ("error") or taken as they are ("nearest").
    `weights`: initializers of floats are "constant", or "variable" and decide no If.
    `exact`: gradients are to pass what it makes, so nothing is rounded that need not be.
    """

    name = "normalize"

    indices: str = ERROR
    weights: str = CONSTANT
    exact: bool = False

    @classmethod
    def of(cls, options: Options) -> Normalize:
        exact = options.training is not None
        return cls(options.indices or ERROR, options.weights, exact)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
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
    """As the pass; `keep` tells which operators stay though their schema defines them."""
    enclose_gradients(module)
    model = model_of(module)
    inference = infer_shapes(module, store, weights)
    _Expansion(model, keep, store, inference, checked, exact).expand(model.graph.block)
    for function in model.functions.values():
        function.detach()
        function.erase()


@dataclass
class _Expansion:
    """The state of one normalisation."""

    model: Model
    keep: Keep
    store: WeightStore
    inference: Inference
    checked: bool
    """Whether indices that data brings are."""
    exact: bool
    trusted: set[Operation] = field(default_factory=set)
    """What came of operators whose indices are checked: theirs are computed from these."""

    def expand(self, block: Block) -> None:
        """Expands what stands in a block, in the graphs inside it, and in what comes of it."""
        pending = list(reversed(list(block.ops)))
        while pending:
            op = pending.pop()
            if not isinstance(op, OnnxOp):
                continue
            is_constant = op.op_type == "Constant" and op.domain == ""
            # An initializer is a weight that training changes, a constant is not: lowering, which
            # knows Constant, must still see the difference.
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
            self.inference.lenient |= op.op_type == "If"
            self.exact |= (op.domain, op.op_type) == GRADIENT
            for graphs in op.graphs().values():
                for graph in graphs:
                    self.expand(graph.block)
            self.inference.lenient, self.exact = outside

    def check_indices(self, op: OnnxOp) -> bool:
        """Checks the indices that a node gets; whether that is done for what comes of it."""
        if not self.checked or op in self.trusted:
            return op in self.trusted
        return insert_checks(op, self.inference)

    def meaning(self, op: OnnxOp) -> Function | None:
        """The body that stands for a node; None for what stays."""
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

    Whichever of its attributes holds the value.
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
