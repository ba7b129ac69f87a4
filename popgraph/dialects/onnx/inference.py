"""Type inference over a graph: visits nodes in order and propagates small constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.traits import Pure

from popgraph.dialects.onnx.attributes import (
    ManyAttr,
    RefAttr,
    SparseTensorAttr,
    TensorAttr,
    array_of,
)
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.evaluation import SHAPES, evaluate_node
from popgraph.dialects.onnx.functions import body_of_call, function_of, type_rule
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, Value
from popgraph.dialects.onnx.schema_inference import ANSWERS, InferenceQuery, infer_types
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import mismatch, undetected_conflict
from popgraph.dialects.onnx.typeproto import from_text
from popgraph.dialects.onnx.types import (
    UNKNOWN,
    Dim,
    dims,
    erased,
    joined,
    refined,
    static_shape,
    tensor_type,
)
from popgraph.dialects.program import BlobAttr, WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import KNOWN_ELEMENTS, prod

"""Finds the function that defines an operator of another domain."""


_results: dict[InferenceQuery, Sequence[Any]] = {}
"""Cached results of nodes on small constants: equal layers repeat the same queries."""


class Inference:
    """
    Infers the types of a graph's values in order and propagates small constants.

    `known` holds the elements of constant values. Schemas read them as data (the shape operand of
    Reshape), and nodes whose operands are all known are evaluated.
    """

    def __init__(
        self,
        opsets: Mapping[str, int],
        store: WeightStore,
        functions: Mapping[tuple[str, str, str], Function] | None = None,
    ) -> None:
        self.opsets = dict(opsets)
        self.store = store
        self.functions = functions if functions is not None else {}
        self.lenient = False
        """Whether a node may have unfit inputs: in branches, which may never be taken."""
        self.into_graphs = False
        """Whether to infer the graphs inside nodes again (a reader has already done so)."""
        self.trusting = True
        """Whether the existing types of values are valid, and refine the inferred ones."""
        self.known: dict[SSAValue, Array] = {}
        self.weights_change = False
        """Whether float initializers are only initial values of variables."""
        self.changing: set[SSAValue] = set()
        """Known values that depend on such initializers: they decide no branch."""

    def decided(self, value: SSAValue) -> Array | None:
        """The elements of a value if they are known and constant."""
        return None if value in self.changing else self.known.get(value)

    def take(self, value: SSAValue, source: SSAValue, known_by: Inference | None = None) -> None:
        """Copies the known elements of `source` to `value`, if any."""
        known_by = known_by or self
        if source in known_by.known:
            self.known[value] = known_by.known[source]
            if source in known_by.changing:
                self.changing.add(value)

    def visit(self, op: Operation) -> None:
        """Infers the result types of a node or an initializer from its operand types."""
        if isinstance(op, Initializer):
            if isinstance(op.value, TensorAttr):
                self._note(op.result, op.value)
            if self.weights_change and _is_float(op.result):
                self.changing.add(op.result)
        elif isinstance(op, Custom):
            self._visit_custom(op)
        elif isinstance(op, SchemaOp):
            try:
                self._visit_node(op)
            except TypeMismatchError:
                if not self.lenient:
                    raise
                for result, type_ in zip(op.results, fallbacks(op), strict=True):
                    set_type(result, type_)

    def visit_graph(self, graph: Graph | Function) -> None:
        """Visits a body whose inputs have types."""
        for op in graph.block.ops:
            self.visit(op)

    def _visit_custom(self, op: Custom) -> None:
        function = function_of(op, self.functions)
        if function is None:
            if op.is_call:
                self._visit_call(op)
            elif op.is_packed:
                self._visit_packed(op)
            elif op.is_gradient:
                self._visit_gradient(op)
            else:
                self._visit_outside(op)
            return
        inner = Inference(function.opset_versions, self.store, self.functions)
        inner.weights_change = self.weights_change
        body = body_of_call(function, op)
        for argument, value in zip(body.block.args, op.input_values(), strict=False):
            if value is None:
                continue
            set_type(argument, value.type)
            inner.take(argument, value, self)
        inner.visit_graph(body)
        for result, value in zip(op.output_values(), body.yielded, strict=False):
            if result is not None:
                set_type(result, refined(value.type, result.type))
                self.take(result, value, inner)

    def _visit_outside(self, op: Custom) -> None:
        """An operator with an extension's type rule, or a PopART operator without types."""
        rule = type_rule(op)
        types = None if rule is None else rule(op, self.known, self.store)
        for result, type_ in zip(op.output_values(), types or (), strict=False):
            if result is not None:
                set_type(result, refined(type_, result.type))

    def _visit_call(self, op: Custom) -> None:
        """Infers the graph of a call from the operands."""
        (graph,) = op.graphs()["callee"]
        for argument, value in zip(graph.block.args, op.input_values(), strict=False):
            if value is not None:
                set_type(argument, refined(value.type, argument.type))
        if self.into_graphs:
            self.visit_graph(graph)
        for result, made in zip(op.output_values(), graph.yielded, strict=False):
            if result is not None:
                set_type(result, refined(made.type, result.type))

    def _visit_packed(self, op: Custom) -> None:
        """The graph receives a batch of padded sequences; its results are packed again."""
        (graph,) = op.graphs()["callback"]
        given: Mapping[str, Any] = op.attribute_values()
        batch, longest = given.get("callbackBatchSize", 0), given.get("maxSequenceLengths", ())
        packed = op.input_values()[:-2:3]
        for argument, value, rows in zip(graph.block.args, packed, longest, strict=False):
            if value is not None:
                padded = _reshaped(value.type, (batch, rows), 1)
                set_type(argument, refined(padded, argument.type))
        self.visit_graph(graph)
        for result, made in zip(op.output_values(), graph.yielded, strict=False):
            if result is not None:
                whole = _reshaped(made.type, (given.get("resultSize", 0),), 2)
                set_type(result, refined(whole, result.type))

    def _visit_gradient(self, op: Custom) -> None:
        """Gradients have the types of the operands, which may differ from the graph's own."""
        (graph,) = op.graphs()["function"]
        given = zip(graph.block.args, op.operands, strict=True)
        outside, self.trusting = self.trusting, False
        for argument, value in given:
            if value.type != UNKNOWN:
                set_type(argument, value.type)
            self.take(argument, value)
        self.visit_graph(graph)
        self.trusting = outside
        for result, value in zip(op.output_values(), op.operands, strict=False):
            if result is not None:
                set_type(result, value.type)

    def _visit_node(self, op: SchemaOp) -> None:
        held = _literal_of(op)
        if held is not None:  # Large tensors are not passed to the schema.
            set_type(op.results[0], held.type)
            self._note(op.results[0], held)
            return
        # ONNX's own inference mistakes the first output present for the first of the schema, and
        # refuses a graph with outputs of unknown type.
        within = op.GRAPHS and (self.into_graphs or "" in op.output_names or _is_untyped(op))
        types = visit_graphs(self, op) if within else {}
        question = InferenceQuery.about(op, self.known, self.opsets)
        if not types:
            answers = infer_types(op, self.known, self.store, self.opsets, question)
            types = dict(zip(op.results, answers, strict=True))
        types = {result: type_ for result, type_ in types.items() if type_ != UNKNOWN}
        if len(types) < len(op.results) or op.op_type == "BatchNormalization":
            guesses = dict(zip(op.results, fallbacks(op), strict=True))
            types = {value: refined(types.get(value, UNKNOWN), guesses[value]) for value in guesses}
        for result in op.results:
            type_ = types[result]
            same = erased(type_) == erased(result.type)
            set_type(result, refined(type_, result.type) if self.trusting and same else type_)
            self.known.pop(result, None)
            self.changing.discard(result)
        if undetected_conflict(op):
            raise mismatch(op, "")
        self._follow(op, question)

    def _note(self, value: SSAValue, attribute: TensorAttr) -> None:
        held = attribute.held
        if prod(held.type.get_shape()) <= KNOWN_ELEMENTS and not isinstance(held, BlobAttr):
            self.known[value] = array_of(held, self.store)

    def follow(self, op: Operation) -> None:
        """Evaluates an operation like `visit`, with the types that its results have already."""
        if isinstance(op, SchemaOp):
            if (held := _literal_of(op)) is not None:
                self._note(op.results[0], held)
            else:
                self._follow(op)
        elif isinstance(op, Initializer) and isinstance(op.value, TensorAttr):
            self._note(op.result, op.value)

    def _follow(self, op: SchemaOp, question: InferenceQuery | None = None) -> None:
        """Evaluates a node whose operands are all known and whose results are small."""
        values = self._operands(op)
        if values is None or not op.has_trait(Pure):
            return
        for result in op.results:
            shape = static_shape(result.type)
            if shape is None or prod(shape) > KNOWN_ELEMENTS:
                return
        found = self._evaluated(op, values, question)
        for value, array in zip(op.output_values(), found, strict=False):
            if value is not None and static_shape(value.type) == np.shape(array):
                self.known[value] = array
                if op.op_type not in SHAPES and not self.changing.isdisjoint(op.operands):
                    self.changing.add(value)

    def _evaluated(
        self, op: SchemaOp, values: Mapping[SSAValue, Array], question: InferenceQuery | None
    ) -> Sequence[Any]:
        """The results of a node with known operands; empty if nothing computes them."""
        if op.GRAPHS or any(map(needs_store, op.properties.values())):
            return self._computed(op, values)
        question = question or InferenceQuery.about(op, self.known, self.opsets)
        found = _results.get(question)
        if found is None:
            found = self._computed(op, values)
            if len(_results) >= ANSWERS:
                _results.clear()
            _results[question] = found
        return found

    def _computed(self, op: SchemaOp, values: Mapping[SSAValue, Array]) -> Sequence[Any]:
        try:
            found = evaluate_node(op, values, self.store, self.opsets) or ()
        except Exception:  # NumPy raises many kinds of errors: nothing is known then
            return ()
        for array in found:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # shared by cached results
        return found

    def _operands(self, op: SchemaOp) -> dict[SSAValue, Array] | None:
        """The elements of the operands; None if one is unknown."""
        arrays: dict[SSAValue, Array] = {}
        for value in op.operands:
            if value in self.known:
                arrays[value] = self.known[value]
                continue
            shape = static_shape(value.type)
            if op.op_type not in SHAPES or shape is None:
                return None
            # Shape and Size read only the shape: a broadcast scalar needs no memory.
            arrays[value] = np.broadcast_to(np.float32(0), shape)
        return arrays


def _literal_of(op: SchemaOp) -> TensorAttr | None:
    """The tensor of a Constant."""
    held = op.properties.get("value")
    if isinstance(held, TensorAttr) and len(op.properties) == 1 and op.op_type == "Constant":
        return held
    return None


def _is_untyped(op: SchemaOp) -> bool:
    """Whether a graph inside has outputs of unknown type."""
    graphs = (one for many in op.graphs().values() for one in many)
    return any(value.type == UNKNOWN for graph in graphs for value in graph.yielded)


def _reshaped(type_: Attribute, first: Sequence[Dim], replaced: int) -> Attribute:
    """A type whose first `replaced` axes are replaced by `first`."""
    shape = dims(type_)
    if not isinstance(type_, TensorType) or shape is None:
        return UNKNOWN
    return tensor_type(type_.element_type, (*first, *shape[replaced:]))


def visit_graphs(inference: Inference, op: SchemaOp) -> dict[SSAValue, Attribute]:
    """Infers the graphs inside a node; returns the result types that follow from them."""
    graphs = {name: found[0] for name, found in op.graphs().items()}
    match op.op_type:
        case "If":
            return _visit_if(inference, op, list(graphs.values()))
        case "Loop":
            return _visit_loop(inference, op, graphs["body"])
        case "Scan":
            return _visit_scan(inference, op, graphs["body"])
        case _:
            for graph in graphs.values():
                inference.visit_graph(graph)
            return {}


def taken_branch(inference: Inference, op: SchemaOp) -> Graph | None:
    """The branch that an If always takes; None unless its condition is a known constant."""
    condition = inference.decided(op.operands[0])
    if condition is None:
        return None
    return op.graphs()["then_branch" if np.all(condition) else "else_branch"][0]


def _visit_if(
    inference: Inference, op: SchemaOp, branches: list[Graph]
) -> dict[SSAValue, Attribute]:
    """
    The result types of both branches joined, or of the only branch taken.

    A branch that fails inference is never taken with these inputs: the other one decides.
    """
    taken = taken_branch(inference, op)
    typed: list[Graph] = []
    errors: list[TypeMismatchError] = []
    for branch in branches if taken is None else [taken]:
        try:
            inference.visit_graph(branch)
            typed.append(branch)
        except TypeMismatchError as error:
            _erase_shapes(branch)
            errors.append(error)
    if not typed:
        raise errors[0]
    first, second = typed[0].yielded, typed[-1].yielded
    types = [
        joined(a.type, b.type) if erased(a.type) == erased(b.type) else UNKNOWN
        for a, b in zip(first, second, strict=False)
    ]
    return _of_outputs(op, types)


def _erase_shapes(graph: Graph) -> None:
    """Erases the shapes of a branch that failed inference, since they are unreliable."""
    for value in graph.yielded:
        if isinstance(value.owner, SchemaOp | Custom) and value.owner.parent is graph.block:
            set_type(value, erased(value.type))


def _of_outputs(op: SchemaOp, types: Sequence[Attribute]) -> dict[SSAValue, Attribute]:
    """{output: type} for the outputs that a node has."""
    outputs = zip(op.output_values(), types, strict=False)
    return {value: type_ for value, type_ in outputs if value is not None and type_ != UNKNOWN}


def _visit_loop(inference: Inference, op: SchemaOp, body: Graph) -> dict[SSAValue, Attribute]:
    """Types of a Loop: states by `_visit_iterations`, other results with one row per iteration."""
    count, condition, *first = [*op.input_values(), None, None][: max(2, len(op.input_values()))]
    _note_steering(inference, body, condition is not None)
    for old, argument, new in zip(first, body.block.args[2:], body.yielded[1:], strict=False):
        if old is not None and unchanged(new) is argument:
            inference.take(argument, old)
    types = [UNKNOWN if value is None else value.type for value in first]
    states = _visit_iterations(inference, body, 2, types, 1)
    trips = _trip_count(inference, count, condition, body)
    collected = [_stacked(value.type, 0, trips) for value in body.yielded[1 + len(states) :]]
    return _of_outputs(op, [*(types if trips == 0 else states), *collected])


def _note_steering(inference: Inference, body: Graph, has_condition: bool) -> None:
    """The condition is true at the start of an iteration; without a condition it is unused."""
    for argument in body.block.args[1:2]:
        inference.known.pop(argument, None)
        if has_condition:
            inference.known[argument] = np.full(static_shape(argument.type) or (), True)


def _trip_count(
    inference: Inference, count: SSAValue | None, condition: SSAValue | None, body: Graph
) -> int | None:
    """The trip count of a Loop, if it is known."""
    if condition is not None:
        known = [inference.decided(value) for value in (condition, *body.yielded[:1])]
        if known[0] is not None and not np.all(known[0]):
            return 0
        if any(one is None or not np.all(one) for one in known):
            return None
    found = None if count is None else inference.decided(count)
    return None if found is None or found.size != 1 else max(0, int(found.item()))


def unchanged(value: SSAValue) -> SSAValue:
    """The value before any Identity nodes."""
    while isinstance(value.owner, SchemaOp) and value.owner.op_type == "Identity":
        value = value.owner.operands[0]
    return value


def _visit_iterations(
    inference: Inference, body: Graph, place: int, states: list[Attribute], yielded: int
) -> list[Attribute]:
    """
    The types of states: the most exact ones that hold before and after every iteration.

    Fixed-point iteration from the initial types: a dimension that an iteration changes becomes
    unknown, and the body is inferred again. States begin at index `place` of the body's inputs and
    at index `yielded` of its results.
    """
    trusting, inference.trusting = inference.trusting, False
    try:
        while True:
            for argument, type_ in zip(body.block.args[place:], states, strict=False):
                set_type(argument, type_)
            inference.visit_graph(body)
            after = [value.type for value in body.yielded[yielded : yielded + len(states)]]
            after += states[len(after) :]
            both = [
                joined(a, b) if erased(a) == erased(b) else a
                for a, b in zip(states, after, strict=True)
            ]
            # `joined` only makes dimensions unknown: at most one round per dimension.
            if both == states:
                return states
            states = both
    finally:
        inference.trusting = trusting


def _visit_scan(inference: Inference, op: SchemaOp, body: Graph) -> dict[SSAValue, Attribute]:
    """Types of a Scan, like `_visit_loop`; the scanned axes define the trip count."""
    attributes = op.attribute_values(inference.store)
    batch = op.since_version < 9
    given = [UNKNOWN if value is None else value.type for value in op.input_values()][batch:]
    scanned = attributes.get("num_scan_inputs")
    if not isinstance(scanned, int) or not 0 < scanned <= len(given):
        return {}  # lowering reports the error
    kept, rows = given[: len(given) - scanned], given[len(given) - scanned :]
    entries = None
    if batch:
        entries = next(iter(dims(rows[0]) or [None]))
        kept, rows = ([row_of(type_, 0) for type_ in types] for types in (kept, rows))
    places = _axes(attributes, "scan_input_axes", len(rows))
    trips = [_size(type_, axis) for type_, axis in zip(rows, places, strict=False)]
    for argument, type_, axis in zip(body.block.args[len(kept) :], rows, places, strict=False):
        set_type(argument, refined(row_of(type_, axis), argument.type))
    states = _visit_iterations(inference, body, 0, kept, 0)
    made = body.yielded[len(states) :]
    places = _axes(attributes, "scan_output_axes", len(made))
    count = next((size for size in trips if isinstance(size, int)), trips[0])
    stacked = [_stacked(one.type, axis, count) for one, axis in zip(made, places, strict=False)]
    types = [*states, *stacked]
    return _of_outputs(op, [_stacked(one, 0, entries) for one in types] if batch else types)


def _axes(attributes: Mapping[str, Value], name: str, count: int) -> list[int]:
    given = attributes.get(name)
    return given if isinstance(given, list) and given else [0] * count


def row_of(type_: Attribute, axis: int) -> Attribute:
    """The type of a row along an axis."""
    shape = dims(type_)
    if shape is None or not isinstance(type_, TensorType) or not -len(shape) <= axis < len(shape):
        return erased(type_)
    axis %= len(shape)
    return tensor_type(type_.element_type, [*shape[:axis], *shape[axis + 1 :]])


def _size(type_: Attribute, axis: int) -> Dim:
    shape = dims(type_)
    return shape[axis] if shape and -len(shape) <= axis < len(shape) else None


def _stacked(type_: Attribute, axis: int, count: Dim) -> Attribute:
    """The type of the values of all iterations, stacked along an axis."""
    shape = dims(type_)
    if shape is None or not isinstance(type_, TensorType):
        return erased(type_)
    axis = axis % (len(shape) + 1)
    return tensor_type(type_.element_type, [*shape[:axis], count, *shape[axis:]])


def needs_store(attribute: Attribute) -> bool:
    """Whether the value of an attribute may depend on a store."""
    if isinstance(attribute, TensorAttr):
        return isinstance(attribute.held, BlobAttr)
    return isinstance(attribute, SparseTensorAttr | ManyAttr | RefAttr)


def _is_float(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and isinstance(value.type.element_type, AnyFloat)


def fallbacks(op: SchemaOp) -> list[Attribute]:
    """The result types that follow from the schema's type variables, where inference fails."""
    bound: dict[str, Attribute] = {}
    for value, parameter in _formal(op.input_values(), op.INPUTS, op.SCHEMA.inputs):
        if value is not None and parameter.is_homogeneous:
            bound.setdefault(parameter.type_str, erased(value.type))
    if op.op_type == "BatchNormalization":
        result, mean = op.operands[0].type, op.operands[3].type
        return [result, *[mean] * (len(op.results) - 1)]
    types: list[Attribute] = []
    for value, parameter in _formal(op.output_values(), op.OUTPUTS, op.SCHEMA.outputs):
        if value is None:
            continue
        only = next(iter(parameter.types)) if len(parameter.types) == 1 else None
        types.append(bound.get(parameter.type_str) or (from_text(only) if only else UNKNOWN))
    return types


def _formal(values: Iterable[SSAValue | None], slots: tuple, formals: list) -> Iterator[tuple]:  # type: ignore[type-arg]
    """Each value with its formal parameter; the last parameter repeats for variadics."""
    for place, value in enumerate(values):
        yield value, formals[min(place, len(formals) - 1)]
