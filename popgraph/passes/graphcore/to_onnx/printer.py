"""The printer from graphcore to ONNX nodes, and the table of forms that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.base import Array, GraphcoreOp, dtype_of, shape_of
from popgraph.dialects.locations import origin
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.types import NamesAttr, describe, tensor_type
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import ConstantOp, WeightStore
from popgraph.dialects.program.ops import constant_array
from popgraph.dialects.value_types import set_type
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.errors import UnsupportedError
from popgraph.support.names import hint
from popgraph.support.shapes import Shape

Form: TypeAlias = Callable[["Printer", Any], SSAValue | Sequence[SSAValue]]
"""Adds the ONNX nodes of an operation; returns one ONNX value per result."""

FORMS: dict[type[GraphcoreOp], Form] = {}
"""The ONNX form of each operation."""

OPERATORS: dict[type[GraphcoreOp], str] = {}
"""The main ONNX operators of each form, for listings."""

REASONS: dict[type[GraphcoreOp], str] = {}
"""Operations without an ONNX form, each with the reason."""

Op = TypeVar("Op", bound=GraphcoreOp)


def form(
    *classes: type[GraphcoreOp], by: str
) -> Callable[[Callable[[Printer, Op], Any]], Callable[[Printer, Op], Any]]:
    """Registers a function as the ONNX form of operations; `by` names the main operators."""

    def register(function: Callable[[Printer, Op], Any]) -> Callable[[Printer, Op], Any]:
        for one in classes:
            assert one not in FORMS, f"{one.name} has two forms"
            FORMS[one] = function
            OPERATORS[one] = by
        return function

    return register


def no_form(reason: str, *classes: type[GraphcoreOp]) -> None:
    """Registers operations that have no ONNX form."""
    REASONS.update(dict.fromkeys(classes, reason))


class Printer:
    """
    Adds nodes to one ONNX graph; bodies of branches and loops have printers of their own.

    Forms read types from the graphcore values: ONNX types of new nodes are not inferred here.
    """

    def __init__(
        self, writer: GraphWriter, weights: WeightStore, outer: Printer | None = None
    ) -> None:
        self.writer = writer
        self.weights = weights
        self.root: Printer = self if outer is None else outer.root
        self.values: dict[SSAValue, SSAValue] = {} if outer is None else dict(outer.values)
        self.names: set[str] = set() if outer is None else outer.names
        """Names that inputs, outputs and weights of the model have."""
        self.positions: dict[tuple[SSAValue, int], SSAValue] = (
            {} if outer is None else dict(outer.positions)
        )
        """Positions of indices along an axis of this size; a gather and its gradient share them."""
        self._named: set[SSAValue] = set()
        self._counts: dict[str, int] = {} if outer is None else outer._counts
        self._constants: dict[tuple[str, Shape, bytes], SSAValue] = (
            {} if outer is None else outer._constants
        )

    # operands and names

    def __call__(self, value: SSAValue) -> SSAValue:
        """The ONNX value of a graphcore value."""
        found = self.values.get(value)
        if found is None:  # A literal outside the block that is printed.
            assert isinstance(value.owner, ConstantOp), f"{value} is not printed yet"
            found = self.values[value] = self.literal(value.owner)
        return found

    def literal(self, op: ConstantOp) -> SSAValue:
        return self.constant(self.weights.array(op.literal))

    def known(self, value: SSAValue) -> Array | None:
        """The elements of a literal; None for a computed value."""
        return constant_array(value, self.weights)

    def fresh(self, stem: str) -> str:
        """A name that no value of the model has, also not in bodies of branches and loops."""
        stem = stem or "value"
        while True:
            count = self._counts.get(stem, 0)
            self._counts[stem] = count + 1
            name = f"{stem}_{count}" if count else stem
            if name not in self.names:
                self.names.add(name)
                return name

    # nodes

    def node(self, op_type: str, *inputs: SSAValue | None, **attributes: Any) -> SSAValue:
        """Adds a node with one output."""
        return self.nodes(op_type, inputs, 1, **attributes)[0]

    def nodes(
        self, op_type: str, inputs: Sequence[SSAValue | None], count: int, **attributes: Any
    ) -> list[SSAValue]:
        """Adds a node with `count` outputs."""
        names = [self.fresh(op_type.lower()) for _ in range(count)]
        return self.writer.add_node(op_type, inputs, attributes, outputs=names)

    def constant(self, array: Array) -> SSAValue:
        """An initializer; equal arrays share one. Bodies read the main graph's initializers."""
        array = np.asarray(array, order="C")
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            name = self.fresh("constant")
            self._constants[key] = self.root.writer.add_initializer(name, array)
        return self._constants[key]

    def ints(self, numbers: Iterable[int]) -> SSAValue:
        """A vector of i64: axes, shapes, pads."""
        return self.constant(np.array(list(numbers), np.int64))

    def index(self, number: int) -> SSAValue:
        """A scalar of i64."""
        return self.constant(np.array(number, np.int64))

    def scalar(self, number: float, dtype: DType) -> SSAValue:
        return self.constant(np.array(number).astype(dtype.numpy))

    def cast(self, value: SSAValue, dtype: DType | str) -> SSAValue:
        found = dtypes.BY_NAME[dtype] if isinstance(dtype, str) else dtype
        return self.node("Cast", value, to=found.onnx)

    def reshape(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        # Without allowzero, a 0 would copy the dimension of the input.
        more = {"allowzero": 1} if 0 in shape else {}
        return self.node("Reshape", value, self.ints(shape), **more)

    def transpose(self, value: SSAValue, perm: Sequence[int]) -> SSAValue:
        return value if list(perm) == sorted(perm) else self.node("Transpose", value, perm=perm)

    def pad(
        self, value: SSAValue, low: Sequence[int], high: Sequence[int], fill: Array
    ) -> SSAValue:
        """`value` with copies of `fill` around it."""
        if not any((*low, *high)):
            return value
        return self.node("Pad", value, self.ints((*low, *high)), self.constant(fill))

    def slice(
        self,
        value: SSAValue,
        starts: Sequence[int],
        sizes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> SSAValue:
        """Along each axis, `sizes` elements from `starts` with `steps`."""
        steps = steps or [1] * len(sizes)
        ends = [
            _end(start, size, step) for start, size, step in zip(starts, sizes, steps, strict=True)
        ]
        axes = self.ints(range(len(sizes)))
        return self.node("Slice", value, self.ints(starts), self.ints(ends), axes, self.ints(steps))

    # blocks

    def print_block(self, block: Block) -> None:
        """Prints the graphcore operations of a block."""
        for op in block.ops:
            if isinstance(op, GraphcoreOp):
                self.print_op(op)
            elif isinstance(op, ConstantOp) and op.result not in self.values:
                self.values[op.result] = self.literal(op)

    def print_op(self, op: GraphcoreOp) -> None:
        """Adds the nodes of an operation; none if all of its results are dropped."""
        if not op.results:  # ONNX requires an output of If and Loop.
            return
        made = form_of(op)(self, op)
        for result, value in zip(
            op.results, [made] if isinstance(made, SSAValue) else made, strict=True
        ):
            wanted = tensor_type(dtype_of(result), shape_of(result))
            assert isinstance(value.type, TensorType) and value.type == wanted, (
                f"the ONNX form of {op.name} has type {describe(value.type)}, not {result.type}"
            )
            self.values[result] = value
            if result.name_hint and value not in self._named and self.is_ours(value):
                self.named(value, self.fresh(result.name_hint))
                self._named.add(value)

    def is_ours(self, value: SSAValue) -> bool:
        """Whether a value is the output of a node, which may be renamed, in this graph."""
        return isinstance(value.owner, OnnxOp) and value.owner.parent is self.writer.block

    def named(self, value: SSAValue, name: str) -> None:
        """Renames the output of a node."""
        op = value.owner
        assert isinstance(op, OnnxOp)
        at = list(op.results).index(value)  # type: ignore[arg-type]
        names = list(op.output_names)
        names[at] = name
        op.attributes["outputs"] = NamesAttr.of(names)
        value.name_hint = hint(name)

    def outputs(self, values: Sequence[SSAValue], names: Sequence[str]) -> None:
        """Ends the graph; an output that is an input of another name, or twice, is a copy."""
        ends: list[SSAValue] = []
        for value, name in zip(values, names, strict=True):
            end = value
            if self.writer.name_of(value) != name:
                if not self.is_ours(value) or value in ends:
                    end = self.node("Identity", value)
                self.named(end, name)
            ends.append(end)
        infos = [ValueInfoAttr.of(name, end.type) for name, end in zip(names, ends, strict=True)]
        self.writer.set_outputs(ends, infos)

    def inner(self, name: str) -> Printer:
        """The printer of a body."""
        return Printer(self.writer.subgraph(name), self.weights, self)

    def argument(self, value: SSAValue, stem: str) -> SSAValue:
        """Adds an input of the type of a graphcore value."""
        name = self.fresh(stem)
        return self.writer.add_input(name, tensor_type(dtype_of(value), shape_of(value)))

    def typed(self, value: SSAValue, shape: Sequence[int], dtype: DType) -> SSAValue:
        """`value` with the type that inference of ONNX cannot see."""
        set_type(value, tensor_type(dtype, shape))
        return value


def form_of(op: Operation) -> Form:
    """The ONNX form of an operation; UnsupportedError if it has none."""
    found = FORMS.get(type(op))  # type: ignore[arg-type]
    if found is not None:
        return found
    reason = REASONS.get(type(op), "it has no ONNX form")  # type: ignore[arg-type]
    raise refused(op, reason)


def refused(op: Operation, reason: str) -> UnsupportedError:
    """The error of an operation that cannot be exported."""
    return UnsupportedError(
        f"{op.name.removeprefix('graphcore.')} cannot be exported to ONNX: {reason}",
        origin(op),
        "`popgraph gradient --list` lists the operations that can be exported",
    )


_BEFORE_FIRST = np.iinfo(np.int64).min


def _end(start: int, size: int, step: int) -> int:
    """The end of a slice; a negative end would count from the end of the axis."""
    if not size:
        return start
    end = start + size * step
    return end if end >= 0 else int(_BEFORE_FIRST)


def element_of(value: SSAValue) -> DType:
    assert isinstance(value.type, TensorType)
    return element_types.from_ir(value.type.element_type)
