"""Which `.pgraph` text says what a module of the onnx level says?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType, UnrankedTensorType
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.builder.dsl.first_values import LOAD
from popgraph.builder.dsl.formatter import format_file
from popgraph.builder.dsl.lower_expressions import dtype_of, literal_dtype
from popgraph.builder.dsl.operators import SYMBOLS, Operator
from popgraph.builder.dsl.tree import (
    Argument,
    Assignment,
    Binary,
    Block,
    Call,
    Constant,
    Expression,
    File,
    Graph,
    Items,
    Missing,
    Name,
    Number,
    Opset,
    Parameter,
    Path,
    Span,
    Statement,
    Target,
    Text,
    Truth,
    Type,
    Unary,
    Unknown,
    Weight,
)
from popgraph.dialects.onnx import Initializer, Model, OnnxOp, SchemaOp, model_of, value_name
from popgraph.dialects.onnx.attributes import SparseTensorAttr, ValueInfoAttr
from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.onnx.types import UnknownType, describe, dims
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.attributes import Array
from popgraph.support import dtypes
from popgraph.support.errors import UnsupportedError

NOWHERE = Span(1, 1, 1, 1)
_OF_SYMBOLS = {op_type: symbol for symbol, op_type in SYMBOLS.items()}
_DTYPE_ATTRIBUTES = ("to", "dtype")
"""INT attributes that hold an element type."""

Save = Callable[[str, Array], tuple[str, str]]
"""Keeps a large array, given with the name of its value; the file beside the text, and the key."""

LARGE = 16
"""Arrays with more elements than this are kept elsewhere, if there is a place."""


def text_of(module: ModuleOp, weights: WeightStore, save: Save | None = None) -> str:
    """
    The text of a module; `UnsupportedError` if the language cannot say it yet.

    Names of nodes, their doc strings, metadata and the types that the model declares for inner
    values are left out. `save` keeps the arrays that are too large to be read.
    """
    model = model_of(module)
    if model.functions:
        raise UnsupportedError(
            "a model with functions of its own has no .pgraph text yet",
            hint="`popgraph print --at onnx` shows it",
        )
    opsets = [Opset(NOWHERE, *pair) for pair in model.opset_versions.items()]
    doc = model.doc.text if model.doc is not None else ""
    return format_file(File(NOWHERE, doc, (*opsets, _Raising(model, weights, save).graph())))


def _name(text: str) -> Name:
    return Name(NOWHERE, text)


def _inner_name(op: Operation) -> tuple[str, int] | None:
    """(`y`, 2) of a node whose one result is named `y/2`."""
    if not isinstance(op, OnnxOp) or len(op.results) != 1 or len(op.output_names) != 1:
        return None
    stem, _, number = op.output_names[0].rpartition("/")
    return (stem, int(number)) if stem and number.isdigit() else None


@dataclass
class _Raising:
    """Turns the graph of one model into a tree."""

    model: Model
    weights: WeightStore
    save: Save | None

    def graph(self) -> Graph:
        graph = self.model.graph
        inputs = tuple(
            Parameter(NOWHERE, _name(info.text), self.type(info.type, info.text))
            for info in graph.inputs
        )
        outputs = tuple(map(self.output, graph.outputs, graph.yielded))
        body = Block(NOWHERE, "", tuple(self.statements()))
        return Graph(NOWHERE, _name(graph.graph_name.text or "graph"), inputs, outputs, body)

    def output(self, info: ValueInfoAttr, value: SSAValue) -> Target:
        if value_name(value) != info.text:
            raise UnsupportedError(f"output {info.text!r} has another name inside the graph")
        known = not isinstance(info.type, UnknownType)
        return Target(NOWHERE, _name(info.text), self.type(info.type, info.text) if known else None)

    def type(self, type_: Attribute, name: str) -> Type:
        if not isinstance(type_, TensorType | UnrankedTensorType):
            raise UnsupportedError(
                f"values of type {describe(type_)} have no .pgraph text yet", f"value {name!r}"
            )
        dtype = _name(describe(type_).split("[")[0])
        sizes = dims(type_)
        if sizes is None:
            return Type(NOWHERE, dtype, None)
        return Type(NOWHERE, dtype, tuple(map(_dim, sizes)))

    # statements

    def statements(self) -> list[Statement]:
        """From the last to the first, so that a result comes before the steps that led to it."""
        ops = [op for op in self.model.graph.block.ops if isinstance(op, OnnxOp | Initializer)]
        found: list[Statement] = []
        end = len(ops)
        while end:
            root = ops[end - 1]
            steps = self.steps(ops, end - 1)
            end -= 1 + len(steps)
            found.append(self.statement(root, set(steps)))
        return found[::-1]

    def steps(self, ops: Sequence[Operation], place: int) -> list[Operation]:
        """
        The operations before `ops[place]` that are parts of its expression.

        They are when the expression, read back, would write the same operations with the same
        names in the same order.
        """
        root = ops[place]
        if not isinstance(root, OnnxOp) or not place:
            return []
        stem = next(filter(None, root.output_names), "_")
        inner = _inner_name(ops[place - 1])
        if inner is None or inner[0] != stem or inner[1] > place:
            return []
        steps = list(ops[place - inner[1] : place])
        named = [_inner_name(op) for op in steps]
        if named != [(stem, number + 1) for number in range(len(steps))]:
            return []
        if not all(self.may_be_inner(op) for op in steps):
            return []
        return steps if list(self.written(root, set(steps))) == [*steps, root] else []

    def may_be_inner(self, op: Operation) -> bool:
        """Whether nobody but one operand of one operation refers to the result."""
        typed = not isinstance(op, SchemaOp) and not isinstance(op.results[0].type, UnknownType)
        return len(list(op.results[0].uses)) == 1 and not typed

    def written(self, op: Operation, inner: set[Operation]) -> Iterator[Operation]:
        """The order in which the operations of an expression are written when it is read."""
        plain = self.plain_literals(op, inner)
        values = list(enumerate(self.operands(op)))
        for _, value in sorted(values, key=lambda placed: placed[0] in plain):
            if value is not None and isinstance(value.owner, Operation) and value.owner in inner:
                yield from self.written(value.owner, inner)
        yield op

    def plain_literals(self, op: Operation, inner: set[Operation]) -> set[int]:
        """
        The operands that are constants and can be written as `0.5`, without `f32(...)`.

        When it is read, such a literal is written after all other operands and takes a dtype that
        fits them; a constant for which that would be the wrong one is not among these.
        """
        values = self.operands(op)
        plain = {
            place
            for place, value in enumerate(values)
            if value is not None and value.owner in inner and _is_constant(value.owner)
        }
        while wrong := [place for place in sorted(plain) if not self.guessed(op, place, plain)]:
            plain -= set(wrong)
        return plain

    def guessed(self, op: Operation, place: int, plain: set[int]) -> bool:
        """Whether the dtype of a constant is the one that its plain literal would get."""
        assert isinstance(op, OnnxOp)
        values = self.operands(op)
        value = values[place]
        assert value is not None and isinstance(value.owner, Operation)
        literal = _literal(self.array(value.owner), value_name(value))
        seen = [
            None if other in plain and other >= place else known
            for other, known in enumerate(values)
        ]
        return literal_dtype(_operator(op), place, seen, literal) == dtype_of(value)

    def operands(self, op: Operation) -> list[SSAValue | None]:
        assert isinstance(op, OnnxOp)
        values = list(op.input_values())
        while values and values[-1] is None:
            values.pop()
        return values

    def statement(self, op: Operation, inner: set[Operation]) -> Statement:
        if isinstance(op, Initializer):
            return self.weight(op)
        assert isinstance(op, OnnxOp)
        if _is_constant(op) and op.output_names[0]:
            array, name = self.array(op), op.output_names[0]
            type_ = self.type(op.results[0].type, name)
            return Constant(NOWHERE, _name(name), type_, self.first_value(name, array))
        values = iter(op.results)
        targets = tuple(
            self.target(op, name, next(values)) if name else Target(NOWHERE, Missing(NOWHERE), None)
            for name in op.output_names
        )
        return Assignment(NOWHERE, targets, self.root_expression(op, inner))

    def root_expression(self, op: OnnxOp, inner: set[Operation]) -> Expression:
        if op.op_type == "Identity" and not op.domain:
            (value,) = self.operands(op)
            if value is not None and value.owner not in inner:
                return _name(value_name(value))
        return self.expression(op, inner)

    def target(self, op: OnnxOp, name: str, value: SSAValue) -> Target:
        """The types of results stand in the text only where nothing could infer them."""
        known = isinstance(op, SchemaOp) or isinstance(value.type, UnknownType)
        return Target(NOWHERE, _name(name), None if known else self.type(value.type, name))

    def weight(self, op: Initializer) -> Weight:
        name = op.value_name.text
        if isinstance(op.value, SparseTensorAttr) or op.input is not None:
            raise UnsupportedError(
                "sparse weights and weights that are inputs, too, have no .pgraph text yet",
                f"initializer {name!r}",
            )
        value = self.first_value(name, op.array(self.weights))
        return Weight(NOWHERE, _name(name), self.type(op.result.type, name), value)

    def first_value(self, name: str, array: Array) -> Expression:
        if array.dtype.kind != "O" and array.size > 1:
            first = array.flat[0]
            if array.tobytes() == np.full_like(array, first).tobytes() and first.dtype.kind != "b":
                number = _literal(first, name)
                return _filled(number) if isinstance(number, Number) else _literal(array, name)
        if self.save is None or array.size <= LARGE or array.dtype.kind == "O":
            return _literal(array, name)
        texts = [Text(NOWHERE, part) for part in self.save(name, array)]
        path = Path(NOWHERE, (_name(LOAD),))
        return Call(NOWHERE, path, tuple(Argument(NOWHERE, None, text) for text in texts))

    # expressions

    def expression(self, op: Operation, inner: set[Operation]) -> Expression:
        """The operation, with those of `inner` in the place of its operands."""
        assert isinstance(op, OnnxOp)
        if op.graphs():
            raise UnsupportedError(
                "graphs inside nodes have no .pgraph text yet",
                op.where(),
                "`popgraph print --at onnx` shows them",
            )
        operands = self.operands(op)
        plain = self.plain_literals(op, inner)
        parts = [
            self.operand(value, inner, plain=place in plain) for place, value in enumerate(operands)
        ]
        attributes = op.onnx_attributes()
        symbol = _OF_SYMBOLS.get(op.op_type) if not op.domain and not attributes else None
        match parts:
            case [lhs, rhs] if symbol and not isinstance(lhs, Missing):
                if not isinstance(rhs, Missing):
                    return Binary(NOWHERE, symbol, lhs, rhs)
            case [Name() | Call() | Binary() | Unary() as operand] if (
                op.op_type == "Neg" and not op.domain
            ):
                return Unary(NOWHERE, "-", operand)
        arguments = [Argument(NOWHERE, None, part) for part in parts]
        for name, value in attributes.items():
            arguments.append(Argument(NOWHERE, _name(name), self.attribute(op, name, value)))
        parts_of_name = [*filter(None, op.domain.split(".")), op.op_type]
        return Call(NOWHERE, Path(NOWHERE, tuple(map(_name, parts_of_name))), tuple(arguments))

    def operand(
        self, value: SSAValue | None, inner: set[Operation], *, plain: bool
    ) -> Expression | Missing:
        if value is None:
            return Missing(NOWHERE)
        owner = value.owner
        if not isinstance(owner, Operation) or owner not in inner:
            return _name(value_name(value))
        if not _is_constant(owner):
            return self.expression(owner, inner)
        literal = _literal(self.array(owner), value_name(value))
        return literal if plain else _typed(dtype_of(value), literal)

    def array(self, op: Operation) -> Array:
        assert isinstance(op, SchemaOp)
        array = op.attribute_values(self.weights)["value"]
        assert isinstance(array, np.ndarray)
        return array

    def attribute(self, op: OnnxOp, name: str, attribute: Attribute) -> Expression:
        value = to_python(attribute, self.weights)
        where = f"attribute {name!r} of {op.where()}"
        if isinstance(value, np.ndarray):
            dtype = "string" if value.dtype.kind == "O" else dtypes.from_numpy(value.dtype).name
            return _typed(dtype, _literal(value, where))
        if isinstance(value, int) and name in _DTYPE_ATTRIBUTES and value in dtypes.BY_ONNX:
            return _name(dtypes.BY_ONNX[value].name)
        if isinstance(value, list):
            return Items(NOWHERE, tuple(_scalar(item, where) for item in value))
        return _scalar(value, where)


def _operator(op: OnnxOp) -> Operator:
    return Operator(op.op_type, op.domain, op.SCHEMA if isinstance(op, SchemaOp) else None)


def _is_constant(owner: object) -> bool:
    """Whether this is a Constant whose value is a tensor."""
    return (
        isinstance(owner, SchemaOp)
        and owner.op_type == "Constant"
        and not owner.domain
        and list(owner.onnx_attributes()) == ["value"]
    )


def _dim(size: int | str | None) -> Number | Name | Unknown:
    if size is None:
        return Unknown(NOWHERE)
    return _name(size) if isinstance(size, str) else Number(NOWHERE, size)


def _filled(number: Number) -> Expression:
    if number.value == 1 or repr(number.value) in ("0", "0.0"):
        return _name("ones" if number.value else "zeros")
    return _typed("constant", number)


def _typed(name: str, argument: Expression) -> Call:
    """`f32([0.5, 1.5])`, `constant(0.5)`."""
    path = Path(NOWHERE, (_name(name),))
    return Call(NOWHERE, path, (Argument(NOWHERE, None, argument),))


def _literal(array: Array | object, where: str) -> Expression:
    """An array written out, so that every element reads back to the same bits."""
    if isinstance(array, np.ndarray) and array.ndim:
        return Items(NOWHERE, tuple(_literal(row, where) for row in array) if array.size else ())
    element = array[()] if isinstance(array, np.ndarray) else array
    if isinstance(element, np.generic):
        return _number(element, where)
    return _scalar(element, where)


def _number(value: np.generic, where: str) -> Expression:
    if value.dtype.kind == "b":
        return Truth(NOWHERE, bool(value))
    row = dtypes.from_numpy(value.dtype)
    if row.is_integer:
        return Number(NOWHERE, int(value))
    if not row.is_float:
        raise UnsupportedError(f"numbers of type {row.name} have no .pgraph text", where)
    exact = float(value)
    for candidate in (float(str(value)), float(repr(exact))):
        if np.asarray(candidate).astype(value.dtype).tobytes() == value.tobytes():
            return Number(NOWHERE, candidate)
    raise UnsupportedError("a NaN that is not the usual one has no .pgraph text", where)


def _scalar(value: object, where: str) -> Expression:
    match value:
        case bool():
            return Truth(NOWHERE, value)
        case int():
            return Number(NOWHERE, value)
        case float():
            return Number(NOWHERE, float(str(np.float32(value))))
        case str():
            return Text(NOWHERE, value)
    raise UnsupportedError(f"{type(value).__name__} values have no .pgraph text yet", where)
