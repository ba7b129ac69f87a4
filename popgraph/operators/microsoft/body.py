"""Functions of ONNX's operators, written as formulas of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME


class Body:
    """The nodes of a function, in the order in which they are computed."""

    def __init__(self, outer: Body | None = None) -> None:
        self.nodes: list[NodeProto] = []
        self.depth: int = 0 if outer is None else outer.depth + 1
        self._numbers: Iterator[int] = count() if outer is None else outer._numbers

    def named(self, name: str) -> Value:
        return Value(self, name)

    def add(
        self, op: str, inputs: Sequence[Operand], outputs: int = 1, **attributes: Any
    ) -> list[Value]:
        """Another node; an attribute that is None is left away, as is an input."""
        names = [self._name(one) for one in inputs]
        while names and not names[-1]:
            names.pop()
        given = {name: value for name, value in attributes.items() if value is not None}
        made = [self._fresh(op) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, names, [one.name for one in made], **given))
        return made

    def constant(self, value: Constant) -> Value:
        """A whole number, a number of single precision, a list of whole numbers, or a tensor."""
        match value:
            case int():
                return self.add("Constant", (), value_int=value)[0]
            case float():
                return self.add("Constant", (), value_float=value)[0]
            case np.ndarray():
                return self.add("Constant", (), value=numpy_helper.from_array(value))[0]
            case _:
                numbers = np.array(value, np.int64)
                return self.add("Constant", (), value=numpy_helper.from_array(numbers))[0]

    def counted(self, limit: Operand) -> Value:
        """0, 1, ... below a whole number."""
        return self.add("Range", [0, limit, 1])[0]

    def needed(self, results: Sequence[str]) -> list[NodeProto]:
        """The nodes that these results depend on."""
        wanted, found = set(results), []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                wanted |= _read_by(node)
                found.append(node)
        return found[::-1]

    def scanned(
        self,
        carried: Sequence[Value],
        rows: Value | Sequence[Value],
        turn: Turn,
        backwards: bool = False,
    ) -> list[Value]:
        """
        What is carried from row to row, and what the turns give, stacked.

        `turn` is told the body of the loop, what is carried and a row of each of `rows`; it gives
        what is carried further, and then what is stacked.
        """
        inner, scanned = Body(self), [rows] if isinstance(rows, Value) else rows
        inputs = [inner._fresh("carried") for _ in carried] + [inner._fresh("row") for _ in scanned]
        made = [inner.add("Identity", [one])[0] for one in turn(inner, *inputs)]
        stacked, way = len(made) - len(carried), int(backwards)
        infos = [[ValueInfoProto(name=one.name) for one in many] for many in (inputs, made)]
        return self.add(
            "Scan",
            [*carried, *scanned],
            len(made),
            body=helper.make_graph(inner.nodes, "turn", *infos),
            num_scan_inputs=len(scanned),
            scan_input_directions=[way] * len(scanned),
            scan_output_directions=[way] * stacked or None,
        )

    def looped(self, limit: Value, carried: Sequence[Value], turn: Step) -> list[Value]:
        """
        What is carried from turn to turn, at most so many.

        `turn` is told the body of the loop, the number of the turn and what is carried; it gives
        whether there is another one, and what is carried further.
        """
        inner = Body(self)
        inputs = [inner._fresh(name) for name in ("turn", "goes_on", *["carried"] * len(carried))]
        goes_on, made = turn(inner, inputs[0], *inputs[2:])
        results = [inner.add("Identity", [one])[0] for one in (goes_on, *made)]
        infos = [[ValueInfoProto(name=one.name) for one in many] for many in (inputs, results)]
        graph = helper.make_graph(inner.nodes, "turn", *infos)
        return self.add("Loop", [limit, None, *carried], len(carried), body=graph)

    def called(self, graph: str, inputs: Sequence[Operand], outputs: int) -> list[Value]:
        """What the graph gives that is an attribute of the node, by its name."""
        results = [ValueInfoProto(name=f"{graph}_{at}") for at in range(outputs)]
        nodes = [helper.make_node("Constant", (), [one.name], value_int=0) for one in results]
        stands_for = helper.make_graph(nodes, graph, [], results)
        return self.add("Call", inputs, outputs, callee=stands_for, domain="ai.graphcore")

    def _name(self, operand: Operand) -> str:
        if operand is None:
            return ""
        return operand.name if isinstance(operand, Value) else self.constant(operand).name

    def _fresh(self, op: str) -> Value:
        return Value(self, f"{op}_{next(self._numbers)}")


class Value:
    """
    A value of a function.

    Each operator of ONNX is a method, whose first input the value is: `x.Softmax(axis=-1)`. Other
    inputs may be constants. Numbers beside a value in a formula have its element type.
    """

    def __init__(self, body: Body, name: str) -> None:
        self.body = body
        self.name = name

    def __getattr__(self, op: str) -> Callable[..., Value]:
        if not op[0].isupper():
            raise AttributeError(op)
        return partial(self.applied, op)

    def applied(self, op: str, *more: Operand, **attributes: Any) -> Value:
        return self.several(op, 1, *more, **attributes)[0]

    def several(self, op: str, outputs: int, *more: Operand, **attributes: Any) -> list[Value]:
        """All the outputs of an operator that has so many, in the innermost body."""
        bodies = [one.body for one in (self, *more) if isinstance(one, Value)]
        innermost = max(bodies, key=lambda body: body.depth)
        return innermost.add(op, [self, *more], outputs, **attributes)

    def number(self, value: float) -> Value:
        """A scalar of the element type of this value."""
        return self.body.constant(value).CastLike(self)

    def _with(self, op: str, other: Value | float) -> Value:
        return self.applied(op, other if isinstance(other, Value) else self.number(other))

    def _behind(self, op: str, other: float) -> Value:
        return self.number(other).applied(op, self)

    def __add__(self, other: Value | float) -> Value:
        return self._with("Add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._with("Sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._behind("Sub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._with("Mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._with("Div", other)

    def __mod__(self, other: Value | float) -> Value:
        return self._with("Mod", other)

    def __matmul__(self, other: Value) -> Value:
        return self._with("MatMul", other)

    def __lt__(self, other: Value | float) -> Value:
        return self._with("Less", other)

    def __le__(self, other: Value | float) -> Value:
        return self._with("LessOrEqual", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._with("Greater", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._with("GreaterOrEqual", other)

    def __and__(self, other: Value) -> Value:
        return self._with("And", other)

    def __or__(self, other: Value) -> Value:
        return self._with("Or", other)

    def same(self, other: Value | float) -> Value:
        """Where both are equal."""
        return self._with("Equal", other)

    def scaled(self, factor: float) -> Value:
        return self if factor == 1 else self * float(factor)

    def reshaped(self, *shape: int) -> Value:
        """0 is the size of before, -1 what is left."""
        return self.Reshape(shape)

    def permuted(self, *order: int) -> Value:
        return self.Transpose(perm=order)

    def part(self, start: int, end: int, axis: int) -> Value:
        return self.Slice([start], [end], [axis])

    def length(self, axis: int) -> Value:
        """The size of an axis, a scalar."""
        return self.Shape(start=axis, end=axis + 1 or None).Squeeze()

    def typed(self, kind: str) -> Value:
        """In another element type, by our name of it."""
        return self.Cast(to=BY_NAME[kind].onnx)


Constant: TypeAlias = int | float | Sequence[int] | Array
Operand: TypeAlias = Value | Constant | None

Turn: TypeAlias = Callable[..., Sequence[Value]]
Step: TypeAlias = Callable[..., tuple[Value, Sequence[Value]]]

LAST = 2**63 - 1
"""The end of an axis, whatever its size."""


def total(*values: Value | None) -> Value:
    """The sum of those that are there, of which the first is."""
    first, *more = [one for one in values if one is not None]
    for one in more:
        first = first + one
    return first


def _read_by(node: NodeProto) -> set[str]:
    """What a node reads, by the graphs that it holds as well."""
    inner = (one for held in node.attribute for one in held.g.node)
    return set(node.input).union(*map(_read_by, inner))
