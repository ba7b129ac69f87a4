"""
A builder of ONNX functions from formulas of values.

Functions consist of ONNX operators, not graphcore operations, because the onnx level uses them:
type inference with unknown sizes, type checks, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import CALL
from popgraph.dialects.onnx.functions import OPSET
from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.types import UNKNOWN, tensor_type
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import DataAttr, WeightStore
from popgraph.operators.record import MICROSOFT
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME


class _Inline(WeightStore):
    """A store that inlines all literals, so that every compilation can share a function."""

    def attribute(self, array: Array) -> DataAttr:
        return DataAttr.of(array)


class Body:
    """
    The operations of a function or of a loop body in it, in order of execution.

    Results have no types until inference runs for a call.
    """

    def __init__(self, outer: Body | None = None) -> None:
        self.depth: int = 0 if outer is None else outer.depth + 1
        self._numbers: Iterator[int] = count() if outer is None else outer._numbers
        self._writer: GraphWriter = (
            GraphWriter({"": OPSET, MICROSOFT: 1, CALL[0]: 1}, _Inline(), typed=False)
            if outer is None
            else outer._writer.subgraph("turn")
        )

    def input(self, name: str, type_: Attribute = UNKNOWN) -> Value:
        return Value(self, self._writer.add_input(name, type_, info=ValueInfoAttr.of(name)))

    def add(
        self, op: str, inputs: Sequence[Operand], outputs: int = 1, domain: str = "", **given: Any
    ) -> list[Value]:
        """Appends a node; inputs and attributes that are None are absent."""
        operands = [self._operand(one) for one in inputs]
        attributes = {name: value for name, value in given.items() if value is not None}
        names = [self._fresh(op) for _ in range(outputs)]
        made = self._writer.add_node(op, operands, attributes, domain=domain, outputs=names)
        return [Value(self, one) for one in made]

    def constant(self, value: Constant) -> Value:
        """A Constant: an integer, an f32 number, a list of integers, or a tensor."""
        match value:
            case int():
                return self.add("Constant", (), value_int=value)[0]
            case float():
                return self.add("Constant", (), value_float=value)[0]
            case np.ndarray() | np.generic():
                return self.add("Constant", (), value=np.asarray(value))[0]
            case _:
                return self.add("Constant", (), value=np.array(value, np.int64))[0]

    def counted(self, limit: Operand) -> Value:
        """The integers 0, 1, ..., limit - 1."""
        return self.add("Range", [0, limit, 1])[0]

    def scanned(
        self,
        carried: Sequence[Value],
        rows: Value | Sequence[Value],
        step: ScanStep,
        backwards: bool = False,
    ) -> list[Value]:
        """
        A Scan over the rows of tensors: the final states, then the stacked results.

        `step` gets the loop's body, the states and a row of each of `rows`; it returns the next
        states, then the values to stack.
        """
        inner, scanned = Body(self), [rows] if isinstance(rows, Value) else rows
        inputs = [inner.input(inner._fresh("carried")) for _ in carried]
        inputs += [inner.input(inner._fresh("row")) for _ in scanned]
        made = step(inner, *inputs)
        stacked, way = len(made) - len(carried), int(backwards)
        return self.add(
            "Scan",
            [*carried, *scanned],
            len(made),
            body=inner._graph(made),
            num_scan_inputs=len(scanned),
            scan_input_directions=[way] * len(scanned),
            scan_output_directions=[way] * stacked or None,
        )

    def looped(self, limit: Value, carried: Sequence[Value], step: LoopStep) -> list[Value]:
        """
        A Loop of at most `limit` iterations: the final states.

        `step` gets the loop's body, the iteration number and the states; it returns whether another
        iteration follows, and the next states.
        """
        inner = Body(self)
        at = inner.input(inner._fresh("turn"), tensor_type("i64", []))
        inner.input(inner._fresh("goes_on"), tensor_type("bool", []))
        held = [inner.input(inner._fresh("carried")) for _ in carried]
        continues, made = step(inner, at, *held)
        graph = inner._graph([continues, *made])
        return self.add("Loop", [limit, None, *carried], len(carried), body=graph)

    def called(self, graph: Graph, inputs: Sequence[Operand], outputs: int) -> list[Value]:
        """The outputs of a graph attribute of the node, applied to inputs."""
        return self.add(CALL[1], inputs, outputs, CALL[0], callee=graph.clone())

    def function(self, name: str, results: Sequence[Value]) -> Function:
        """The function with these results; nodes that they do not need are dropped."""
        self._end(results)
        made = self._writer.function(MICROSOFT, name)
        for op in reversed(tuple(made.nodes)):
            if not any(result.uses for result in op.results):
                made.block.erase_op(op)
        return made

    def _graph(self, results: Sequence[Value]) -> Graph:
        self._end(results)
        return self._writer.graph()

    def _end(self, results: Sequence[Value]) -> None:
        """Sets the results, as copies: they may be inputs, or list a value twice."""
        self._writer.set_outputs([self.add("Identity", [one])[0].ssa for one in results])

    def _operand(self, operand: Operand) -> SSAValue | None:
        if operand is None:
            return None
        return operand.ssa if isinstance(operand, Value) else self.constant(operand).ssa

    def _fresh(self, op: str) -> str:
        return f"{op}_{next(self._numbers)}"


def _infix(op: str) -> Callable[[Value, Value | float | np.generic], Value]:
    return lambda value, other: value._with(op, other)


class Value:
    """
    A value of a function.

    Each ONNX operator is a method with the value as first input: `x.Softmax(axis=-1)`. Other
    inputs may be constants. In formulas, Python numbers take the element type of the value, and
    NumPy numbers keep their own.
    """

    def __init__(self, body: Body, ssa: SSAValue) -> None:
        self.body = body
        self.ssa = ssa

    def __getattr__(self, op: str) -> Callable[..., Value]:
        if not op[0].isupper():
            raise AttributeError(op)
        return partial(self.applied, op)

    def applied(self, op: str, *more: Operand, **attributes: Any) -> Value:
        return self.several(op, 1, *more, **attributes)[0]

    def several(self, op: str, outputs: int, *more: Operand, **attributes: Any) -> list[Value]:
        """The outputs of an operator with several, added to the innermost body of its inputs."""
        bodies = [one.body for one in (self, *more) if isinstance(one, Value)]
        innermost = max(bodies, key=lambda body: body.depth)
        return innermost.add(op, [self, *more], outputs, **attributes)

    def number(self, value: float) -> Value:
        """A scalar in the element type of this value."""
        return self.body.constant(value).CastLike(self)

    def _with(self, op: str, other: Value | float | np.generic) -> Value:
        return self.applied(op, self.number(other) if isinstance(other, int | float) else other)

    __add__, __sub__, __mul__ = _infix("Add"), _infix("Sub"), _infix("Mul")
    __truediv__, __mod__, __matmul__ = _infix("Div"), _infix("Mod"), _infix("MatMul")
    __lt__, __le__ = _infix("Less"), _infix("LessOrEqual")
    __gt__, __ge__ = _infix("Greater"), _infix("GreaterOrEqual")
    __and__, __or__ = _infix("And"), _infix("Or")

    def __rsub__(self, other: float) -> Value:
        return self.number(other).applied("Sub", self)

    def same(self, other: Value | float | np.generic) -> Value:
        """The mask of equal elements."""
        return self._with("Equal", other)

    def scaled(self, factor: float) -> Value:
        return self if factor == 1 else self * float(factor)

    def reshaped(self, *shape: int) -> Value:
        """Reshapes; a size of 0 is unchanged, -1 is inferred."""
        return self.Reshape(shape)

    def permuted(self, *order: int) -> Value:
        return self.Transpose(perm=order)

    def part(self, start: int, end: int, axis: int) -> Value:
        return self.Slice([start], [end], [axis])

    def length(self, axis: int) -> Value:
        """The size of an axis, as a scalar."""
        return self.Shape(start=axis, end=axis + 1 or None).Squeeze()

    def typed(self, kind: str) -> Value:
        """The value cast to an element type by name, such as "f32"."""
        return self.Cast(to=BY_NAME[kind].onnx)


Constant: TypeAlias = int | float | Sequence[int] | Array | np.generic
Operand: TypeAlias = Value | Constant | None

ScanStep: TypeAlias = Callable[..., Sequence[Value]]
LoopStep: TypeAlias = Callable[..., tuple[Value, Sequence[Value]]]

LAST = 2**63 - 1
"""The end of an axis, whatever its size."""


def total(*values: Value | None) -> Value:
    """The sum of the values that are not None; at least one must be given."""
    first, *more = [one for one in values if one is not None]
    for one in more:
        first = first + one
    return first
