"""Prints the operations of a graph or function as `.pgraph` statements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from xdsl.ir import Operation, SSAValue

from popgraph.builder.pgraph.check.declared_types import may_be
from popgraph.builder.pgraph.check.node_names import NodeNames
from popgraph.builder.pgraph.check.operators import SYMBOLS, Operator
from popgraph.builder.pgraph.lower.tensor_literals import literal_dtype
from popgraph.builder.pgraph.print.from_control import control, is_control
from popgraph.builder.pgraph.print.from_values import (
    NOWHERE,
    AttributeText,
    array_type,
    call,
    dtype_name,
    initial_value,
    literal,
    name,
    sparse,
    tensor,
    type_text,
)
from popgraph.builder.pgraph.print.print_annotations import (
    about_notes,
    graph_annotations,
    names_rule,
    node_notes,
    note,
    value_notes,
)
from popgraph.builder.pgraph.syntax.literals import default_dtype, is_literal
from popgraph.builder.pgraph.syntax.tree import (
    Annotation,
    Argument,
    Assignment,
    Binary,
    Block,
    Call,
    Constant,
    Expression,
    Graph,
    Items,
    Missing,
    Name,
    Number,
    Parameter,
    Path,
    Statement,
    Target,
    Unary,
    Weight,
)
from popgraph.dialects.onnx import Function, Initializer, OnnxOp, SchemaOp, value_name
from popgraph.dialects.onnx import Graph as OnnxGraph
from popgraph.dialects.onnx.attributes import SparseTensorAttr, TensorAttr, ValueInfoAttr
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.metadata import graph_metadata, tensor_metadata
from popgraph.dialects.onnx.types import UnknownType
from popgraph.support.arrays import Array

_OF_SYMBOLS = {op_type: symbol for symbol, op_type in SYMBOLS.items()}


class GraphText:
    """
    Converts the body of a graph or function to statements.

    `names` is the naming rule of its nodes, if annotated around it. `infos` are the model's
    declarations of inner values; those without a result are `loose`. An operand is nested in its
    user's expression only if reading the text recreates the same operations, names and order.
    """

    def __init__(
        self,
        body: OnnxGraph | Function,
        attributes: AttributeText,
        *,
        weights_are_inputs: bool = False,
        names: NodeNames | None = None,
    ) -> None:
        self.ops = [op for op in body.block.ops if isinstance(op, OnnxOp | Initializer)]
        self.nodes = list(body.nodes)
        self.attributes = attributes
        self.weights_are_inputs = weights_are_inputs
        self.infos = {info.text: info for info in body.value_infos or ()}
        self.yielded = set(body.yielded)
        given = zip(body.output_names, body.yielded, strict=True)
        self.renamed = [(label, value) for label, value in given if value_name(value) != label]
        """Outputs whose values a pass has replaced."""
        self.function = isinstance(body, Function)
        found, self.rule = names_rule(self.nodes)
        names = names or found
        self.naming = names.rule
        self.expected = self._expected(names)
        results = {label for op in self.nodes for label in op.output_names}
        self.loose = [info for label, info in self.infos.items() if label not in results]
        self.infos = {label: info for label, info in self.infos.items() if label in results}

    def _expected(self, names: NodeNames) -> Mapping[Operation, str]:
        """The names that nodes have without an annotation."""
        firsts = ((op, next(filter(None, op.output_names), "")) for op in self.nodes)
        return {op: names.next(op.op_type, first) for op, first in firsts}

    # statements

    def statements(self) -> tuple[Statement, ...]:
        """Converts from last to first, so that a result precedes its intermediate values."""
        found: list[Statement] = []
        end = len(self.ops)
        while end:
            root = self.ops[end - 1]
            steps = self.steps(end - 1)
            end -= 1 + len(steps)
            found.append(self.statement(root, set(steps)))
        return (*found[::-1], *(_alias(label, value) for label, value in self.renamed))

    def steps(self, index: int) -> list[Operation]:
        """The operations before `ops[index]` that are nested in its expression."""
        root = self.ops[index]
        if not isinstance(root, OnnxOp) or not index:
            return []
        stem = next(filter(None, root.output_names), "_")
        inner = _inner_name(self.ops[index - 1])
        if inner is None or inner[0] != stem or inner[1] > index:
            return []
        steps = self.ops[index - inner[1] : index]
        named = [_inner_name(op) for op in steps]
        if named != [(stem, number + 1) for number in range(len(steps))]:
            return []
        if not all(self.may_be_inner(op) for op in steps):
            return []
        written = list(self.written(root, set(steps)))
        return list(steps) if written == [*steps, root] else []

    def may_be_inner(self, op: Operation) -> bool:
        """Whether the result is used exactly once, as an operand of one operation."""
        assert isinstance(op, OnnxOp)
        value = op.results[0]
        alone = len(list(value.uses)) == 1 and value not in self.yielded
        return (
            alone
            and not is_control(op)
            and op.output_names[0] not in self.infos
            and not self.notes(op)
        )

    def notes(self, op: OnnxOp) -> tuple[Annotation, ...]:
        return node_notes(op, self.expected[op], self.attributes.weights)

    def written(self, op: Operation, inner: set[Operation]) -> Iterator[Operation]:
        """The order in which reading an expression would create its operations."""
        plain: set[int] = set() if is_control(op) else self.plain_literals(op, inner)
        values = list(enumerate(operands(op)))
        for _, value in sorted(values, key=lambda placed: placed[0] in plain):
            if value is not None and isinstance(value.owner, Operation) and value.owner in inner:
                yield from self.written(value.owner, inner)
        yield op

    def plain_literals(self, op: Operation, inner: Collection[Operation]) -> set[int]:
        """
        Operands that are constants and can be printed as `0.5`, without `f32(...)`.

        Such a literal is read after all other operands, and its element type follows from them; a
        constant with another element type is not included.
        """
        plain = {
            index
            for index, value in enumerate(operands(op))
            if value is not None and isinstance(value.owner, Operation)
            if value.owner in inner and is_constant(value.owner)
            if is_literal(literal(self.array(value.owner)))
        }
        while wrong := [index for index in sorted(plain) if not self.guessed(op, index, plain)]:
            plain -= set(wrong)
        return plain

    def guessed(self, op: Operation, index: int, plain: set[int]) -> bool:
        """Whether a plain literal would get the element type of this constant."""
        assert isinstance(op, OnnxOp)
        values = operands(op)
        value = values[index]
        assert value is not None and isinstance(value.owner, Operation)
        array = self.array(value.owner)
        seen = [
            None if other in plain and other >= index else known
            for other, known in enumerate(values)
        ]
        return literal_dtype(_operator(op), index, seen, literal(array)) == dtype_name(array)

    def statement(self, op: Operation, inner: set[Operation]) -> Statement:
        if isinstance(op, Initializer):
            return self.weight(op)
        assert isinstance(op, OnnxOp)
        notes = self.notes(op)
        if is_constant(op) and op.output_names[0] and op.output_names[0] not in self.infos:
            array, label = self.array(op), op.output_names[0]
            type_ = array_type(array)
            value = initial_value(array, label, self.attributes.file)
            return Constant(NOWHERE, name(label), type_, value, notes)
        return Assignment(NOWHERE, self.targets(op), self.root_expression(op, inner), notes)

    def targets(self, op: OnnxOp) -> tuple[Target, ...]:
        labels = list(op.output_names)
        while len(labels) > 1 and not labels[-1]:
            labels.pop()
        values = dict(zip(op.output_names, op.output_values(), strict=False))
        nothing = Target(NOWHERE, Missing(NOWHERE), None)
        shown = [self.target(one, values.get(one)) if one else nothing for one in labels]
        if op.op_type == "Loop" and is_control(op):
            shown.insert(0, nothing)  # Its condition is carried, too, but not given.
        return tuple(shown) or (nothing,)

    def target(self, label: str, value: SSAValue | None) -> Target:
        """A result, with its declared type if the model has one."""
        info = self.infos.get(label)
        if info is None or value is None:
            return Target(NOWHERE, name(label), None)
        return declared_target(info, value)

    def root_expression(self, op: OnnxOp, inner: set[Operation]) -> Expression:
        if op.op_type == "Identity" and not op.domain:
            (value,) = operands(op)
            if value is not None and value.owner not in inner:
                return name(value_name(value))
        if isinstance(op, SchemaOp) and is_control(op):
            return control(op, self.head(op, inner), self.block)
        return self.expression(op, inner)

    def head(self, op: SchemaOp, inner: set[Operation]) -> list[Expression | Missing]:
        """The operands of If, Loop or Scan; a constant condition must not be folded."""
        plain = () if op.op_type == "If" else [one for one in inner if self.is_usual(one)]
        values = operands(op)
        parts = [
            self.operand(one, inner, plain=one is not None and one.owner in plain) for one in values
        ]
        match parts:
            case [Number(value=value), *_] if op.op_type == "Loop" and value < 0:
                parts[0] = tensor(np.array(value), "", None)
        return parts

    def is_usual(self, op: Operation) -> bool:
        """Whether a constant has the default element type of its literal."""
        if not is_constant(op):
            return False
        array = self.array(op)
        shown = literal(array)
        return is_literal(shown) and default_dtype(shown) == dtype_name(array)

    def block(self, graph: OnnxGraph) -> tuple[Block, tuple[Target, ...]]:
        """The body of a branch or loop, and its results."""
        inner = GraphText(graph, self.attributes, names=NodeNames(self.naming))
        doc, _ = graph_annotations(graph_metadata(graph), ())
        given = tuple(map(inner_output, graph.outputs, graph.yielded))
        return Block(NOWHERE, doc, inner.statements()), given

    # weights

    def weight(self, op: Initializer) -> Weight:
        label = op.value_name.text
        type_ = type_text(op.result.type)
        notes = self.weight_notes(op)
        if isinstance(op.value, SparseTensorAttr):
            held = sparse(op.value, label, self.attributes.weights, self.attributes.file)
            return Weight(NOWHERE, name(label), type_, held, notes)
        array = op.array(self.attributes.weights)
        value = initial_value(array, label, self.attributes.file)
        return Weight(NOWHERE, name(label), type_, value, notes)

    def weight_notes(self, op: Initializer) -> tuple[Annotation, ...]:
        found: list[Annotation] = []
        if op.input is not None and not self.weights_are_inputs:
            found.append(note("input", op.place_in_inputs))
        if isinstance(op.value, TensorAttr):
            found += about_notes(tensor_metadata(op.value))
        return tuple(found)

    # expressions

    def expression(self, op: Operation, inner: set[Operation]) -> Expression:
        """The operation, with operations of `inner` nested as operands."""
        assert isinstance(op, OnnxOp)
        plain = self.plain_literals(op, inner)
        parts = [
            self.operand(value, inner, plain=index in plain)
            for index, value in enumerate(operands(op))
        ]
        attributes, graphs = op.onnx_attributes(), op.graphs()
        bare = not op.domain and not attributes and not isinstance(op, Custom)
        if bare and (short := _infix(op.op_type, parts)):
            return short
        arguments = [Argument(NOWHERE, None, part) for part in parts]
        known = isinstance(op, SchemaOp)
        for label, value in attributes.items():
            shown = self.attributes(label, value, known=known)
            arguments.append(Argument(NOWHERE, name(label), shown))
        for label, held in sorted(graphs.items(), reverse=True):  # then_branch, else_branch
            arguments.append(Argument(NOWHERE, name(label), self.graphs(op, label, held)))
        return Call(NOWHERE, path(op.domain, op.op_type), tuple(arguments))

    def graphs(self, op: OnnxOp, label: str, held: Sequence[OnnxGraph]) -> Expression:
        if isinstance(op, Custom) and op.has_list_of_graphs(label):
            return call("GRAPHS", Items(NOWHERE, tuple(self.graph(one) for one in held)))
        return self.graph(held[0])

    def graph(self, graph: OnnxGraph) -> Graph:
        """A graph attribute."""
        inner = GraphText(graph, self.attributes)
        label = name(graph.graph_name.text) if graph.graph_name.data else None
        loose = inner.loose
        doc, notes = graph_annotations(graph_metadata(graph), loose)
        body = Block(NOWHERE, doc, inner.statements())
        return Graph(
            NOWHERE,
            label,
            tuple(map(inner_parameter, graph.inputs)),
            tuple(map(inner_output, graph.outputs, graph.yielded)),
            body,
            (*inner.rule, *notes),
        )

    def operand(
        self, value: SSAValue | None, inner: set[Operation], *, plain: bool
    ) -> Expression | Missing:
        if value is None:
            return Missing(NOWHERE)
        owner = value.owner
        if not isinstance(owner, Operation) or owner not in inner:
            return name(value_name(value))
        if not is_constant(owner):
            return self.expression(owner, inner)
        array = self.array(owner)
        return literal(array) if plain else tensor(array, value_name(value), self.attributes.file)

    def array(self, op: Operation) -> Array:
        assert isinstance(op, SchemaOp)
        array = op.attribute_values(self.attributes.weights)["value"]
        assert isinstance(array, np.ndarray)
        return array


def _inner_name(op: Operation) -> tuple[str, int] | None:
    """(`y`, 2) for a node whose only result is named `y/2`."""
    if not isinstance(op, OnnxOp) or len(op.results) != 1 or any(op.output_names[1:]):
        return None
    stem, _, number = op.output_names[0].rpartition("/")
    return (stem, int(number)) if stem and number.isdecimal() and number[0] != "0" else None


def operands(op: Operation) -> list[SSAValue | None]:
    """The inputs of a node, without trailing absent ones."""
    assert isinstance(op, OnnxOp)
    values = list(op.input_values())
    while values and values[-1] is None:
        values.pop()
    return values


def is_constant(owner: object) -> bool:
    """Whether this is a Constant with a tensor value."""
    return (
        isinstance(owner, SchemaOp)
        and owner.op_type == "Constant"
        and not owner.domain
        and isinstance(owner.onnx_attributes().get("value"), TensorAttr)
    )


def _operator(op: OnnxOp) -> Operator:
    return Operator(op.op_type, op.domain, op.SCHEMA if isinstance(op, SchemaOp) else None)


def path(domain: str, op_type: str) -> Path:
    """`ai.onnx.ml.Scaler`; a domain that is not dotted names is quoted."""
    parts = domain.split(".") if domain else []
    if not all(parts):
        parts = [domain]
    return Path(NOWHERE, tuple(map(name, (*parts, op_type))))


def _infix(op_type: str, parts: Sequence[Expression | Missing]) -> Expression | None:
    """The operation as `a + b`, `-a`, `not a`, unless reading that would fold it."""
    symbol = _OF_SYMBOLS.get(op_type)
    match parts:
        case [lhs, rhs] if symbol and not isinstance(lhs, Missing) and not isinstance(rhs, Missing):
            if not (is_literal(lhs) and is_literal(rhs)):
                return Binary(NOWHERE, symbol, lhs, rhs)
        case [Name() | Call() | Binary() | Unary() as operand] if op_type in ("Neg", "Not"):
            return Unary(NOWHERE, "-" if op_type == "Neg" else "not", operand)
    return None


def parameter(info: ValueInfoAttr) -> Parameter:
    """An input of a file-level graph."""
    return Parameter(NOWHERE, name(info.text), type_text(info.type), value_notes(info))


def inner_parameter(info: ValueInfoAttr) -> Parameter:
    """An input of a subgraph; its type is often undeclared."""
    known = not isinstance(info.type, UnknownType)
    return replace(parameter(info), type=type_text(info.type) if known else None)


def declared_target(info: ValueInfoAttr, value: SSAValue) -> Target:
    """A result or an output with its declared type, even if that is wrong."""
    notes = value_notes(info)
    if not may_be(value.type, info.type):
        notes = (note("unchecked"), *notes)
    return Target(NOWHERE, name(info.text), type_text(info.type), notes)


def _alias(label: str, value: SSAValue) -> Assignment:
    """`label = value`."""
    target = Target(NOWHERE, name(label), None)
    return Assignment(NOWHERE, (target,), name(value_name(value)))


def inner_output(info: ValueInfoAttr, value: SSAValue) -> Target:
    """An output of a subgraph; its type is often undeclared."""
    known = not isinstance(info.type, UnknownType)
    return replace(declared_target(info, value), type=type_text(info.type) if known else None)
