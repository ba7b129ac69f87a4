"""Interprets onnx modules in Python, node by node."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.traits import Pure

from popgraph.dialects import element_types
from popgraph.dialects.onnx.containers import Function, Model, model_of
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.evaluation import alone, evaluate_node
from popgraph.dialects.onnx.expansion import schema_function
from popgraph.dialects.onnx.functions import (
    body_of_call,
    definition_of,
    function_of,
    outputs_of_call,
)
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp
from popgraph.dialects.onnx.schema_inference import ANSWERS
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import OptType, SeqType, describe, dims, static_shape
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError, RunError, UnsupportedError
from popgraph.support.inputs import as_array, check_names, fitted
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape

Values = dict[SSAValue, Any]
"""The values of a body: arrays, lists for sequences, None for an empty optional."""

Draw = Callable[[OnnxOp, Values], list[Any]]
"""Computes a random node."""


OPTIONALS = frozenset({"Optional", "OptionalHasElement", "OptionalGetElement"})
"""Operators on optionals, computed here: onnx's reference wraps a sequence in a list."""


def knows(module: ModuleOp) -> bool:
    """Whether all operators are ONNX's own or functions of the model."""
    functions = model_of(module).functions
    return all(op.key in functions for op in module.walk() if isinstance(op, Custom))


def is_known(op: Operation, functions: Container[tuple[str, str, str]]) -> bool:
    """Whether Python can compute a node."""
    if isinstance(op, Custom):
        own = op.is_check or op.is_call
        return own or op.key in functions or definition_of(*op.key[:2]) is not None
    return True


def run_onnx(module: ModuleOp, inputs: Mapping[str, Array], store: WeightStore) -> dict[str, Array]:
    """
    The outputs of a module's graph for these inputs, by name.

    Inputs may also override initializers that the model lists as inputs.
    """
    return Interpreter(model_of(module), store).graph(inputs)


class Interpreter:
    """An interpreter of models, node by node."""

    def __init__(self, model: Model, store: WeightStore, draw: Draw | None = None) -> None:
        """Without `draw`, random nodes use NumPy's generator."""
        self.model = model
        self.store = store
        self.functions = model.functions
        self._draw = draw
        self._bodies: dict[tuple[OnnxOp, tuple[Attribute, ...]], Function] = {}
        """The function bodies of calls, by node and operand types: one copy for all iterations."""

    def graph(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        graph = self.model.graph
        values = self.given(inputs)
        self.nodes(graph, values)
        return {
            name: values[value]
            for name, value in zip(graph.output_names, graph.yielded, strict=True)
        }

    def given(self, inputs: Mapping[str, Any]) -> Values:
        """The values of inputs, and of initializers that the caller overrides."""
        arguments, initializers = self._entries
        if self.are_declared(inputs):
            return {argument: inputs[name] for name, argument in arguments.items()}
        check_names(inputs, arguments, overridable=initializers)
        values: Values = {
            argument: _as_declared(name, argument.type, inputs[name])
            for name, argument in arguments.items()
        }
        for name in initializers.keys() & inputs.keys():
            values[initializers[name]] = inputs[name]
        return values

    @cached_property
    def _entries(self) -> tuple[dict[str, SSAValue], dict[str, SSAValue]]:
        """The inputs by name, and the initializers that callers may override."""
        graph = self.model.graph
        also: dict[str, SSAValue] = {
            one.value_name.text: one.result for one in graph.initializers if one.input is not None
        }
        return dict(zip(graph.input_names, graph.block.args, strict=True)), also

    def are_declared(self, inputs: Mapping[str, Any]) -> bool:
        """Whether these are exactly the inputs, as arrays of the declared types and shapes."""
        if inputs.keys() != self._declared.keys():
            return False
        for name, (dtype, shape) in self._declared.items():
            value = inputs[name]
            if type(value) is not np.ndarray or value.dtype is not dtype:
                return False
            if shape is not None and value.shape != shape:
                return False
        return True

    @cached_property
    def _declared(self) -> dict[str, tuple[np.dtype[Any] | None, Shape | None]]:
        """The element types of numeric inputs, and shapes that are known; None for others."""
        found = dict[str, tuple[np.dtype[Any] | None, Shape | None]]()
        for name, argument in self._entries[0].items():
            element = getattr(argument.type, "element_type", None)
            if element is None or not element_types.is_number(element):
                found[name] = None, None
            else:
                found[name] = element_types.from_ir(element).numpy, static_shape(argument.type)
        return found

    def literals(self, body: Graph, values: Values) -> None:
        """The values that do not depend on inputs: initializers and constants."""
        for op in body.block.ops:
            if isinstance(op, Initializer):
                values[op.result] = op.array(self.store)
            elif isinstance(op, OnnxOp) and (op.domain, op.op_type) == ("", "Constant"):
                self.node(op, values)

    def nodes(self, body: Graph | Function, values: Values) -> None:
        for op in body.block.ops:
            if isinstance(op, OnnxOp):
                self.node(op, values)
            elif isinstance(op, Initializer):
                values.setdefault(op.result, op.array(self.store))

    def node(self, op: OnnxOp, values: Values) -> None:
        """Computes the results of one node."""
        called = function_of(op, self.functions) if isinstance(op, Custom) else None
        if isinstance(op, Custom) and called is not None:
            found = self.call(op, called, values)
        elif isinstance(op, Custom) and op.is_call:
            (callee,) = op.graphs()["callee"]
            found = self.body(callee, [values[value] for value in op.operands], values)
        elif isinstance(op, Custom) and op.is_check:
            found = [values[value] for value in op.operands]
        elif isinstance(op, Custom):
            raise UnsupportedError(
                f"the operator {op.domain}::{op.op_type} is unknown",
                op.where(),
                "use ONNX's own operators: the reference runs no others",
            )
        elif op.op_type in ("If", "Loop") and op.domain == "":
            found = self.branch(op, values) if op.op_type == "If" else self.loop(op, values)
        elif op.op_type in OPTIONALS and op.domain == "":
            found = self.optional(op, values)
        elif op.op_type == "Scan" and op.domain == "":
            found = self.scan(op, values) if op.since_version > 8 else self.batch(op, values)
        elif op.op_type == "SequenceMap" and op.domain == "":
            found = self.map(op, values)
        elif self._draw is not None and draws(op):
            found = self._draw(op, values)
        else:
            found = self.evaluate(op, values)
        for result, array in zip(op.output_values(), found, strict=False):
            if result is not None:
                values[result] = array

    def call(self, op: OnnxOp, function: Function, values: Values) -> list[Any]:
        if (op, ()) not in self._bodies:
            self._bodies[op, ()] = body_of_call(function, op)
        return self._called(op, self._bodies[op, ()], values)

    def _called(self, op: OnnxOp, body: Function, values: Values) -> list[Any]:
        inner: Values = dict.fromkeys(body.block.args)
        for argument, value in zip(body.block.args, op.input_values(), strict=False):
            inner[argument] = None if value is None else values[value]
        inner |= {value: array for value, array in values.items() if value not in inner}
        self.nodes(body, inner)
        given = outputs_of_call(op, body, list(body.yielded))
        return [None if value is None else inner[value] for value in given]

    def body(self, graph: Graph, arguments: Sequence[Any], values: Values) -> list[Any]:
        """The outputs of an inner graph, which can read outer values."""
        inner: Values = dict(values)
        inner.update(zip(graph.block.args, arguments, strict=True))
        self.nodes(graph, inner)
        return [inner[value] for value in graph.yielded]

    def branch(self, op: OnnxOp, values: Values) -> list[Any]:
        (condition,) = op.operands
        name = "then_branch" if np.all(values[condition]) else "else_branch"
        return self.body(op.graphs()[name][0], [], values)

    def loop(self, op: OnnxOp, values: Values) -> list[Any]:
        """
        Iterates up to the limit or until the condition fails; scan outputs are stacked.

        Without an initial condition, the conditions of iterations are ignored.
        """
        limit, condition, *first = [
            None if value is None else values[value] for value in op.input_values()
        ]
        (graph,) = op.graphs()["body"]
        is_conditional = condition is not None
        if limit is None and not is_conditional:
            raise RunError(
                "this Loop never ends: it has neither a trip count nor a condition",
                op.where(),
                "give it one of them",
            )
        states, going, iteration = list(first), not is_conditional or bool(np.all(condition)), 0
        rows: list[list[Any]] = []
        while going and (limit is None or iteration < int(np.reshape(limit, ()))):
            arguments = [np.array(iteration, np.int64), np.array(True), *states]
            still, *after = self.body(graph, arguments, values)
            states, row = after[: len(states)], after[len(states) :]
            rows.append(row)
            going, iteration = not is_conditional or bool(np.all(still)), iteration + 1
        scans = graph.yielded[1 + len(states) :]
        if rows:
            return states + [_stacked(op, column) for column in zip(*rows, strict=True)]
        return states + [_no_rows(value.type) for value in scans]

    def map(self, op: OnnxOp, values: Values) -> list[Any]:
        """SequenceMap, by the function in its schema."""
        function = self.defined(op)
        assert function is not None, "the schema of SequenceMap has a body"
        return self.call(op, function, values)

    def optional(self, op: OnnxOp, values: Values) -> list[Any]:
        """Operators on optionals: an optional is its element, or None."""
        (value,) = [None if one is None else values[one] for one in op.input_values()] or [None]
        if op.op_type == "OptionalHasElement":
            return [np.array(value is not None)]
        if op.op_type == "OptionalGetElement" and value is None:
            raise RunError(
                "the optional of OptionalGetElement is empty",
                op.where(),
                "check OptionalHasElement first, or give the optional a value",
            )
        return [value]

    def scan(self, op: OnnxOp, values: Values) -> list[Any]:
        """Iterates over the rows of the scanned inputs; scan outputs are stacked."""
        attributes = op.attribute_values(self.store)
        (graph,) = op.graphs()["body"]
        given = [values[value] for value in op.operands]
        first = len(given) - cast(int, attributes["num_scan_inputs"])
        states, count = given[:first], len(graph.yielded) - first
        scanned = [
            np.flip(np.moveaxis(array, axis, 0), 0) if backwards else np.moveaxis(array, axis, 0)
            for array, axis, backwards in zip(
                given[first:],
                _of_each(attributes, "scan_input_axes", len(given) - first),
                _of_each(attributes, "scan_input_directions", len(given) - first),
                strict=True,
            )
        ]
        states, iterations = self.iterations(graph, states, scanned, values)
        columns = list(zip(*iterations, strict=True))
        made = [
            _stacked(op, column) if iterations else _no_rows(value.type)
            for column, value in zip(columns or [()] * count, graph.yielded[first:], strict=True)
        ]
        axes = _of_each(attributes, "scan_output_axes", count)
        directions = _of_each(attributes, "scan_output_directions", count)
        return states + [
            np.moveaxis(np.flip(array, 0) if backwards else array, 0, axis)
            for array, axis, backwards in zip(made, axes, directions, strict=True)
        ]

    def iterations(
        self, graph: Graph, states: list[Any], scanned: Sequence[Array], values: Values
    ) -> tuple[list[Any], list[list[Any]]]:
        """The final states of a scan over rows, and the scan outputs of each iteration."""
        iterations: list[list[Any]] = []
        for rows in zip(*scanned, strict=True):
            after = self.body(graph, [*states, *map(np.asarray, rows)], values)
            states = after[: len(states)]
            iterations.append(after[len(states) :])
        return states, iterations

    def batch(self, op: OnnxOp, values: Values) -> list[Any]:
        """Scan-8: scans each entry of a batch up to its own length; zeros follow."""
        attributes = op.attribute_values(self.store)
        (graph,) = op.graphs()["body"]
        lengths, *_ = [None if one is None else values[one] for one in op.input_values()]
        given = [values[one] for one in op.input_values()[1:] if one is not None]
        first = len(given) - cast(int, attributes["num_scan_inputs"])
        directions = _of_each(attributes, "directions", len(given) - first)
        size = given[first].shape[1]
        finals, columns = [], []
        for at in range(len(given[first])):
            length = size if lengths is None else int(lengths[at])
            rows = [
                np.flip(array[at][:length], 0) if backwards else array[at][:length]
                for array, backwards in zip(given[first:], directions, strict=True)
            ]
            initial = [one[at] for one in given[:first]]
            states, iterations = self.iterations(graph, initial, rows, values)
            finals.append(states)
            columns.append([_stacked(op, column) for column in zip(*iterations, strict=True)])
        some: list[Array] = next(filter(None, columns), [])
        nothing = [one[:0] for one in some] or [_no_rows(one.type) for one in graph.yielded[first:]]
        made = [
            [_padded(entry[index] if entry else nothing[index], size) for entry in columns]
            for index in range(len(nothing))
        ]
        return [_stacked(op, column) for column in [*zip(*finals, strict=True), *made]]

    def evaluate(self, op: OnnxOp, values: Values) -> list[Any]:
        """Computes a node by its Python function, its lowering, or its function body."""
        try:
            found = evaluate_node(op, values, self.store, self.model.opset_versions)
        except PopgraphError as error:
            kind = type(error) if isinstance(error, RunError) else RunError
            raise kind(error.what, op.where(), error.hint) from error
        except Exception as error:
            raise RunError(
                f"{op.op_type}-{op.since_version} cannot be computed: {error}",
                op.where(),
                f"its operands are {', '.join(_shown(values[one]) for one in op.operands)}",
            ) from error
        if found is not None:
            return found
        return self._by_definition(op, values)

    def _by_definition(self, op: OnnxOp, values: Values) -> list[Any]:
        """Computes a node by its schema's function, which may depend on operand types."""
        node = op
        if isinstance(op, SchemaOp) and not op.regions:
            operands = [None if one is None else values[one] for one in op.input_values()]
            _, node = alone(op, operands)
        types = tuple(value.type for value in node.operands)
        if (op, types) not in self._bodies:
            function = self.defined(node)
            if function is None:
                raise UnsupportedError(
                    f"{op.op_type}-{op.since_version} cannot be computed in Python",
                    op.where(),
                    "`popgraph ops` lists the supported operators",
                )
            if len(self._bodies) >= ANSWERS:
                self._bodies.clear()
            self._bodies[op, types] = body_of_call(function, op)
        return self._called(op, self._bodies[op, types], values)

    def defined(self, op: OnnxOp) -> Function | None:
        """The function body in the operator's schema, if any."""
        if not isinstance(op, SchemaOp):
            return None
        return schema_function(op, self.model.opset_versions, self.store)


def _shown(value: Any) -> str:
    """An operand in a message, such as `float32[2, 3]`."""
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__


def draws(op: OnnxOp) -> bool:
    """Whether a node is random, at least in some mode."""
    return isinstance(op, SchemaOp) and not op.regions and not op.has_trait(Pure)


def _stacked(op: OnnxOp, rows: Sequence[Any]) -> Array:
    """The rows of a loop's iterations, stacked."""
    shapes = {np.shape(row) for row in rows}
    if len(shapes) > 1:
        first, second, *_ = map(list, sorted(shapes))
        raise RunError(
            f"the rows of {op.op_type} differ: {first} and {second}",
            op.where(),
            "give rows of one shape in all iterations",
        )
    return np.stack(rows)


def _padded(rows: Array, size: int) -> Array:
    """Rows padded with zeros to `size`."""
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), rows.dtype)])


def _of_each(attributes: Mapping[str, object], name: str, count: int) -> list[int]:
    """A list attribute; zeros if absent."""
    return cast(list[int], attributes.get(name) or [0] * count)


def _no_rows(type_: Attribute) -> Array:
    """The stacked rows of a loop without iterations, for values of this type."""
    element = getattr(type_, "element_type", None)
    dtype = element_types.from_ir(element).numpy if element is not None else np.dtype(object)
    shape = [dim if isinstance(dim, int) else 0 for dim in dims(type_) or ()]
    return np.empty((0, *shape), dtype)


def _as_declared(name: str, type_: Attribute, value: Any) -> Any:
    """A given input in the declared container; `RunError` for another container."""
    if isinstance(type_, SeqType) and not isinstance(value, list | tuple):
        raise RunError(
            f"input {name!r} is a sequence, not {type(value).__name__}",
            hint="give a list of arrays",
        )
    if isinstance(type_, SeqType):
        return list(value)
    if isinstance(type_, OptType):
        return None if value is None else _as_declared(name, type_.element, value)
    return value if isinstance(value, dict) else _tensor(name, type_, as_array(name, value))


def _tensor(name: str, type_: Attribute, array: Array) -> Array:
    """An array in the declared element type; `RunError` for another shape."""
    element, shape = getattr(type_, "element_type", None), static_shape(type_)
    if shape is not None and shape != array.shape:
        raise RunError(
            f"input {name!r} must be {describe(type_)}, not {array.dtype}{list(array.shape)}"
        )
    if element is None or not element_types.is_number(element):
        return array
    return fitted(name, array, element_types.from_ir(element))
