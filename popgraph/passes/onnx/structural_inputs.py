"""Finds structural inputs: inputs of a model whose values decide the structure of its program."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.traits import Pure

from popgraph.dialects import element_types
from popgraph.dialects.onnx.containers import Function, model_of, value_name
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.expansion import schema_function
from popgraph.dialects.onnx.functions import body_of_call, function_of, outputs_of_call
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Body, OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import dims, static_shape
from popgraph.dialects.program import WeightStore
from popgraph.operators.record import lowering_of, structural_operands
from popgraph.support.errors import DifferentiationError
from popgraph.support.shapes import KNOWN_ELEMENTS, prod

Sources: TypeAlias = frozenset[str] | None
"""The inputs that a value depends on; None: the value is unknown before a run."""

CONSTANT: Sources = frozenset()
SHAPES_ONLY = frozenset({"Shape", "Size", "EyeLike"})
"""Operators that read the shape of their input, but not its elements."""


def structural_inputs(module: ModuleOp, store: WeightStore) -> tuple[str, ...]:
    """
    Inputs whose values the lowering must know, in the model's order.

    Found by data flow from the inputs to structural operands of operators (see `lowers`), through
    functions, but not through operators that read shapes only. Large inputs and inputs with
    several axes are data, so they are not followed.
    """
    found = _walked(module, store).readers
    return tuple(name for name in model_of(module).graph.input_names if name in found)


def branching_inputs(module: ModuleOp, store: WeightStore) -> tuple[str, ...]:
    """
    Inputs whose values are structural for some input shapes.

    They choose between branches of an If that may have different types.
    """
    walk = _walked(module, store)
    names = model_of(module).graph.input_names
    return tuple(name for name in names if name in walk.branching - walk.readers.keys())


def check_gradients(module: ModuleOp, store: WeightStore, names: Iterable[str]) -> None:
    """
    Raises an error if the values of one of these tensors decide structure: it has no gradient.

    An initializer may reach structural integers and booleans through rounding or comparison: its
    gradient along that path is 0.
    """
    wanted = frozenset(names)
    if not wanted:
        return
    walk = _walked(module, store, wanted)
    inputs = model_of(module).graph.input_names
    for name in sorted(wanted & walk.readers.keys()):
        op, operand = walk.readers[name]
        if name in inputs or _is_float(operand):
            computed = "" if value_name(operand) == name else "a value computed from "
            raise DifferentiationError(
                f"{computed}{name!r} decides the structure of {op.op_type}: each value has its own "
                "program, so it has no gradient",
                op.where(),
                f"leave {name!r} out of the gradients{_instead(op, operand)}",
            )


def _instead(op: OnnxOp, operand: SSAValue) -> str:
    """A hint at operators with a gradient for an operand that is structural here."""
    regions = op.input_values()[1:2] if op.op_type == "Resize" and op.since_version > 10 else ()
    if operand not in regions:
        return ""
    return "; GridSample and RoiAlign have gradients with respect to positions"


def _is_float(value: SSAValue) -> bool:
    element = getattr(value.type, "element_type", None)
    return element is None or (
        element_types.is_number(element) and element_types.from_ir(element).is_float
    )


def _walked(module: ModuleOp, store: WeightStore, weights: Container[str] = ()) -> _Walk:
    model = model_of(module)
    walk = _Walk(model.functions, model.opset_versions, store, weights)
    graph = model.graph
    sources: dict[SSAValue, Sources] = {
        argument: frozenset([name]) if _may_decide(argument.type) else None
        for name, argument in zip(graph.input_names, graph.block.args, strict=True)
    }
    if weights or any(sources.values()):
        walk.follow(graph, sources)
    return walk


def _are_known(op: OnnxOp) -> bool:
    """Whether the shapes of all outputs of a node's graphs are known."""
    yielded = [one for many in op.graphs().values() for graph in many for one in graph.yielded]
    return all(static_shape(value.type) is not None for value in yielded)


def _may_decide(type_: Attribute) -> bool:
    """
    Whether an input may decide structure: it is a number or a short list of numbers.

    Inputs with two or more axes are samples. A structure computed from them is known only after
    that step (see `popgraph.hosted`), so no program is specialized to their values.
    """
    axes = dims(type_)
    return _may_be_known(type_) and (axes is None or len(axes) < 2)


def _may_be_known(type_: Attribute) -> bool:
    """Whether a value can be a constant of a program: its type is not known to be large."""
    if not isinstance(type_, TensorType) or not element_types.is_number(type_.element_type):
        return False
    shape = static_shape(type_)
    return shape is None or prod(shape) <= KNOWN_ELEMENTS


@dataclass
class _Walk:
    """The data-flow analysis: the sources of each value, in the order of nodes."""

    functions: Mapping[tuple[str, str, str], Function]
    opsets: Mapping[str, int]
    store: WeightStore
    weights: Container[str] = ()
    """Initializers that are followed like inputs."""
    readers: dict[str, tuple[OnnxOp, SSAValue]] = field(default_factory=dict)
    """For each source, the first node with a structural operand that depends on it, and that."""
    branching: set[str] = field(default_factory=set)

    def follow(self, body: Body, sources: dict[SSAValue, Sources]) -> None:
        """Adds the sources of all values in a body to `sources`, which contains its inputs."""
        for op in body.block.ops:
            if isinstance(op, Initializer):
                name = op.value_name.text
                sources[op.result] = frozenset([name]) if name in self.weights else CONSTANT
            elif isinstance(op, OnnxOp):
                given = [CONSTANT if one is None else sources.get(one) for one in op.input_values()]
                self._note_demands(op, given)
                made = self._results(op, given, sources)
                for value, source in zip(op.output_values(), made, strict=False):
                    if value is not None:
                        sources[value] = source

    def _note_demands(self, op: OnnxOp, given: Sequence[Sources]) -> None:
        values = op.input_values()
        for index in sorted(structural_operands(op)):
            value = values[index] if index < len(values) else None
            if value is not None:
                for name in given[index] or ():
                    self.readers.setdefault(name, (op, value))
        if (op.domain, op.op_type) == ("", "If") and not _are_known(op):
            self.branching |= given[0] or frozenset()

    def _results(
        self, op: OnnxOp, given: Sequence[Sources], sources: dict[SSAValue, Sources]
    ) -> list[Sources]:
        """The sources of each output."""
        count = len(op.output_names)
        if op.domain == "" and op.op_type in SHAPES_ONLY:
            return [CONSTANT] * count
        if op.graphs():
            return self._of_graphs(op, given, sources)
        if lowering_of(op.domain, op.op_type) is None:
            return self._of_function(op, given) if any(given) else [None] * count
        return [_joined(given) if op.has_trait(Pure) else None] * count

    def _of_graphs(
        self, op: OnnxOp, given: Sequence[Sources], sources: dict[SSAValue, Sources]
    ) -> list[Sources]:
        """The sources of an If: its condition and its branches; unknown for other nodes."""
        graphs = [graph for many in op.graphs().values() for graph in many]
        if isinstance(op, Custom) and op.is_gradient:
            sources.update(zip(graphs[0].block.args, given, strict=True))
        for graph in graphs:
            self.follow(graph, sources)
        if (op.domain, op.op_type) != ("", "If"):
            return [None] * len(op.output_names)
        yielded = zip(*(graph.yielded for graph in graphs), strict=False)
        return [_joined([*given, *(sources.get(one) for one in values)]) for values in yielded]

    def _of_function(self, op: OnnxOp, given: Sequence[Sources]) -> list[Sources]:
        """The sources through a function's body; unknown without one."""
        function = self._function(op)
        if function is None:
            return [None] * len(op.output_names)
        body = body_of_call(function, op)
        inner: dict[SSAValue, Sources] = dict.fromkeys(body.block.args, CONSTANT)
        inner |= dict(zip(body.block.args, given, strict=False))
        self.follow(body, inner)
        values = outputs_of_call(op, body, list(body.yielded))
        return [None if value is None else inner.get(value) for value in values]

    def _function(self, op: OnnxOp) -> Function | None:
        if isinstance(op, Custom):
            return function_of(op, self.functions)
        assert isinstance(op, SchemaOp)
        return schema_function(op, self.opsets, self.store)


def _joined(given: Iterable[Sources]) -> Sources:
    """The union of sources; unknown if one is."""
    made: set[str] = set()
    for source in given:
        if source is None:
            return None
        made |= source
    return frozenset(made)
