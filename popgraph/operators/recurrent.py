"""Lowers LSTM, GRU and RNN: one product with the inputs of all steps, and a loop over steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.control import LoopOp
from popgraph.dialects.program import ConstantOp, YieldOp, constant_array
from popgraph.dialects.program.control import NUMBER, row_type
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.bodies import show_as
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, chooses, lowers
from popgraph.operators.recurrent_activations import Activation, activations
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType

Values: TypeAlias = Sequence[SSAValue]
Step: TypeAlias = Callable[[SSAValue, SSAValue, Values, Values], tuple[Values, Values]]
"""From turn, row of the input, states and weights to the next states and the rows to stack."""


@dataclass(frozen=True)
class Cell(ABC):
    """
    What a layer computes in one step, in one direction, and with which weights.

    Weights and states have the element type of the model; between them, halves are computed with in
    single precision.
    """

    hidden: int
    wide: DType
    functions: Sequence[Activation]
    clip: float
    """Inputs of activations are no farther from 0; 0: as far as they come."""
    varied: bool
    """Whether the attribute `VARIANT` is set."""

    GATES: ClassVar[int]
    FUNCTIONS: ClassVar[tuple[str, ...]]
    """The activations, if the node names none."""
    VARIANT: ClassVar[str] = ""
    """The attribute that makes another cell of it."""
    STATES: ClassVar[tuple[int, ...]] = (5,)
    """The inputs that are the states at the beginning, the output first."""

    @abstractmethod
    def weights(self, own: Weights) -> tuple[Values, SSAValue | None]:
        """What a step needs, and what is added to the products with the inputs of all steps."""

    @abstractmethod
    def step(self, row: SSAValue, states: Values, weights: Values) -> Values:
        """The next states, of the gates' part that comes from the input."""

    def gates(self, value: Operand, count: int) -> list[SSAValue]:
        """The parts of a row in which gates stand side by side, to be computed with."""
        rows, columns = shape_of(value)
        size = columns // count
        return [
            self.widened(gc.SliceOp(value, starts=(0, at), sizes=(rows, size), steps=(1, 1)))
            for at in range(0, columns, size)
        ]

    def widened(self, value: Operand) -> SSAValue:
        return cast(value, self.wide)

    def activated(self, place: int, value: Operand) -> SSAValue:
        """An activation of what is clipped."""
        if self.clip:
            low, high = (scalar(bound, value) for bound in (-self.clip, self.clip))
            value = gc.MinOp(gc.MaxOp(value, low), high)
        return self.functions[place](value)

    def rest(self, gate: SSAValue) -> SSAValue:
        """What a gate leaves of the whole."""
        return gc.SubOp(scalar(1.0, gate), gate).result


@dataclass(frozen=True)
class RnnCell(Cell):
    """h' = f(x W + h R + b)"""

    GATES = 1
    FUNCTIONS = ("Tanh",)

    def weights(self, own: Weights) -> tuple[Values, SSAValue | None]:
        return [own.recurrence(0, self.GATES)], own.whole_bias()

    def step(self, row: SSAValue, states: Values, weights: Values) -> Values:
        gate = gc.AddOp(self.widened(row), self.widened(gc.MatMulOp(states[0], weights[0])))
        return [self.activated(0, gate)]


@dataclass(frozen=True)
class GruCell(Cell):
    """h' = (1 - z) n + z h, of the gates z (update), r (reset) and n (hidden)"""

    GATES = 3
    FUNCTIONS = ("Sigmoid", "Tanh")
    VARIANT = "linear_before_reset"
    """The product with the old state is formed before the reset gate is applied to it."""

    def weights(self, own: Weights) -> tuple[Values, SSAValue | None]:
        if not self.varied:
            return [own.recurrence(0, 2), own.recurrence(2, 3)], own.whole_bias()
        every = own.recurrence(0, self.GATES)
        if not own.has_bias:
            return [every], None
        # The recurrent bias of the hidden gate is reset, too: it stays in the loop.
        outside = gc.AddOp(
            own.bias(0, 3),
            gc.PadOp(own.bias(3, 5), low=(0,), high=(self.hidden,), interior=(0,), value=0.0),
        )
        return [every, own.bias(5, 6)], outside.result

    def step(self, row: SSAValue, states: Values, weights: Values) -> Values:
        (state,) = states
        before = self.widened(state)
        x_z, x_r, x_n = self.gates(row, 3)
        if self.varied:
            h_z, h_r, h_n = self.gates(gc.MatMulOp(state, weights[0]), 3)
            if len(weights) > 1:
                h_n = gc.AddOp(h_n, self.widened(weights[1])).result
            update, reset = self._gate(x_z, h_z), self._gate(x_r, h_r)
            inner: Operand = gc.MulOp(reset, h_n)
        else:
            h_z, h_r = self.gates(gc.MatMulOp(state, weights[0]), 2)
            update, reset = self._gate(x_z, h_z), self._gate(x_r, h_r)
            kept = cast(gc.MulOp(reset, before), dtype_of(state))
            inner = self.widened(gc.MatMulOp(kept, weights[1]))
        new = self.activated(1, gc.AddOp(x_n, inner))
        return [gc.AddOp(gc.MulOp(self.rest(update), new), gc.MulOp(update, before)).result]

    def _gate(self, x: SSAValue, h: SSAValue) -> SSAValue:
        return self.activated(0, gc.AddOp(x, h))


@dataclass(frozen=True)
class LstmCell(Cell):
    """c' = f c + i n,  h' = o tanh(c'), of the gates i, o, f and n (cell), in this order"""

    GATES = 4
    FUNCTIONS = ("Sigmoid", "Tanh", "Tanh")
    VARIANT = "input_forget"
    """The forget gate is what the input gate leaves."""
    STATES = (5, 6)

    def weights(self, own: Weights) -> tuple[Values, SSAValue | None]:
        return [own.recurrence(0, self.GATES), *own.peepholes()], own.whole_bias()

    def step(self, row: SSAValue, states: Values, weights: Values) -> Values:
        state, cell = states
        recurrence, *peepholes = weights
        before = self.widened(cell)
        product = self.widened(gc.MatMulOp(state, recurrence))
        i, o, f, n = self.gates(gc.AddOp(self.widened(row), product), 4)

        def gate(value: SSAValue, place: int, seen: Operand) -> SSAValue:
            """A gate that sees the cell, if there are peepholes."""
            if peepholes:
                seen = gc.MulOp(self.widened(peepholes[place]), seen)
                value = gc.AddOp(value, seen).result
            return self.activated(0, value)

        entering = gate(i, 0, before)
        kept = self.rest(entering) if self.varied else gate(f, 2, before)
        new = self.activated(1, n)
        after = gc.AddOp(gc.MulOp(kept, before), gc.MulOp(entering, new)).result
        return [gc.MulOp(gate(o, 1, after), self.activated(2, after)).result, after]


@dataclass(frozen=True)
class Weights:
    """The weights of one direction, whatever node they are from; matrices stand transposed."""

    node: Node
    direction: int
    hidden: int

    INPUT, RECURRENCE, BIAS, PEEPHOLES = 1, 2, 3, 7

    def inputs(self) -> SSAValue:
        """What the inputs of all steps are multiplied by."""
        return gc.TransposeOp(one(self.node[self.INPUT], self.direction), perm=(1, 0)).result

    def recurrence(self, first: int, last: int) -> SSAValue:
        return self._part(self.RECURRENCE, first, last)

    @property
    def has_bias(self) -> bool:
        return self.node.optional(self.BIAS) is not None

    def bias(self, first: int, last: int) -> SSAValue:
        return self._part(self.BIAS, first, last)

    def whole_bias(self) -> SSAValue | None:
        """Those of the input and of the recurrence together."""
        if not self.has_bias:
            return None
        count = shape_of(self.node[self.BIAS])[1] // self.hidden
        halves = self.bias(0, count // 2), self.bias(count // 2, count)
        return gc.AddOp(*halves).result

    def peepholes(self) -> Values:
        if self.node.optional(self.PEEPHOLES) is None:
            return []
        return [self._part(self.PEEPHOLES, place, place + 1) for place in range(3)]

    def _part(self, index: int, first: int, last: int) -> SSAValue:
        """Some gates' weights; those that never change are turned once, however large they are."""
        rows = slice(first * self.hidden, last * self.hidden)
        known = never_changes(self.node, self.node[index])
        if known is not None:
            return self.node.literal(np.ascontiguousarray(known[self.direction, rows].T))
        own = one(self.node[index], self.direction)
        shape = shape_of(own)
        if shape[0] != rows.stop - rows.start:
            own = gc.SliceOp(
                own,
                starts=(rows.start, *(0,) * (len(shape) - 1)),
                sizes=(rows.stop - rows.start, *shape[1:]),
                steps=(1,) * len(shape),
            ).result
        return own if len(shape) == 1 else gc.TransposeOp(own, perm=(1, 0)).result


def never_changes(node: Node, value: SSAValue) -> Array | None:
    """The elements of a constant for which no gradient can be asked."""
    return None if node.lowering.training else constant_array(value, node.lowering.weights)


def one(value: SSAValue, direction: int) -> SSAValue:
    """What a tensor holds for one direction: its first axis is that of directions."""
    count, *rest = shape_of(value)
    if count > 1:
        zeros = (0,) * len(rest)
        value = gc.SliceOp(
            value, starts=(direction, *zeros), sizes=(1, *rest), steps=(1,) * (len(rest) + 1)
        ).result
    return gc.ReshapeOp(value, shape=rest).result


@dataclass(frozen=True)
class Layer:
    """A recurrent node: its cell for each direction, the time that is its first axis."""

    node: Node
    cells: Sequence[Cell]

    @cached_property
    def x(self) -> SSAValue:
        """The input: steps, batch, features."""
        return self._in_time(self.node[0])

    @property
    def by_batch(self) -> bool:
        """Whether the batch is the first axis of what goes in and comes out."""
        return bool(self.node.integer("layout"))

    def _in_time(self, value: SSAValue) -> SSAValue:
        return gc.TransposeOp(value, perm=(1, 0, 2)).result if self.by_batch else value

    @property
    def is_reverse(self) -> bool:
        return self.node.text("direction") == "reverse"

    @cached_property
    def lengths(self) -> SSAValue | None:
        """The lengths of the sequences as a column, unless all are as long as the tensor."""
        given = self.node.optional(4)
        if given is None:
            return None
        steps, batch, _ = shape_of(self.x)
        known = constant_array(given, self.node.lowering.weights)
        if known is not None and bool((known.astype(np.int64) >= steps).all()):
            return None
        if known is not None:
            return self.node.literal(known.reshape(batch, 1).astype(np.int64))
        return cast(gc.ReshapeOp(given, shape=(batch, 1)), dtypes.BY_NAME["i64"])

    def loops(self) -> list[LoopOp]:
        """The loop of each direction."""
        return [
            self._loop(place, cell, reverse=self.is_reverse or place == 1)
            for place, cell in enumerate(self.cells)
        ]

    def _loop(self, direction: int, cell: Cell, reverse: bool) -> LoopOp:
        own = self.weights(direction, cell)
        weights, bias = cell.weights(own)
        lengths = [] if self.lengths is None else [self.lengths]
        return looped(
            self._step(cell, len(lengths)),
            states=[self.initial(index, direction, cell) for index in cell.STATES],
            rows=self._projected(own, bias),
            captured=[*lengths, *weights],
            reverse=reverse,
            inside=not self.node.lowering.training,
        )

    def _projected(self, own: Weights, bias: SSAValue | None) -> SSAValue:
        """The products of all steps' inputs with the weights, in one."""
        steps, batch, features = shape_of(self.x)
        flat = gc.ReshapeOp(self.x, shape=(steps * batch, features))
        product: Operand = gc.MatMulOp(flat, own.inputs())
        if bias is not None:
            product = gc.AddOp(product, bias)
        return gc.ReshapeOp(product, shape=(steps, batch, shape_of(product)[1])).result

    @property
    def stacks(self) -> bool:
        """Whether the outputs of all steps are wanted."""
        return self.node.wants(0)

    def weights(self, direction: int, cell: Cell) -> Weights:
        return Weights(self.node, direction, cell.hidden)

    def initial(self, index: int, direction: int, cell: Cell) -> SSAValue:
        """A state at the beginning."""
        given = self.node.optional(index)
        return self.zero(cell) if given is None else one(self._in_time(given), direction)

    def zero(self, cell: Cell) -> SSAValue:
        batch = shape_of(self.x)[1]
        return gc.BroadcastOp(self.node.scalar(0.0), shape=(batch, cell.hidden)).result

    def _step(self, cell: Cell, masked: int) -> Step:
        """One turn: the cell, and what its result counts for where a sequence has ended."""
        wanted = self.stacks

        def step(
            turn: SSAValue, row: SSAValue, states: Values, captured: Values
        ) -> tuple[Values, Values]:
            made = cell.step(row, states, captured[masked:])
            new: Values = [cast(value, dtype_of(row)) for value in made]
            output = new[0]
            if masked:
                runs = gc.CompareOp(turn, captured[0], predicate="lt").result
                pairs = zip(new, states, strict=True)
                new = [gc.WhereOp(runs, after, before).result for after, before in pairs]
                if wanted:
                    output = gc.WhereOp(runs, output, scalar(0.0, output)).result
            return new, [output] if wanted else []

        return step

    def outputs(self) -> Lowered:
        """The outputs of all steps, and the states at the end."""
        loops = self.loops()
        finals = [
            self._in_time(_side_by_side(states, axis=0))
            for states in zip(*(loop.finals for loop in loops), strict=True)
        ]
        return [self._sequence(loops), *finals]

    def _sequence(self, loops: Sequence[LoopOp]) -> SSAValue | None:
        if not self.stacks:
            return None
        joined = _side_by_side([loop.stacked[0] for loop in loops], axis=1)
        return gc.TransposeOp(joined, perm=(2, 0, 1, 3)).result if self.by_batch else joined


def _side_by_side(values: Values, axis: int) -> SSAValue:
    """The values of all directions, along an axis that is theirs."""
    shape = shape_of(values[0])
    alone = (*shape[:axis], 1, *shape[axis:])
    parts = [gc.ReshapeOp(value, shape=alone).result for value in values]
    return parts[0] if len(parts) == 1 else gc.ConcatOp(parts, axis=axis).result


def looped(
    step: Step,
    *,
    states: Values,
    rows: SSAValue,
    captured: Values,
    reverse: bool,
    inside: bool,
) -> LoopOp:
    """The loop of a step over all rows; `inside` it stand those of `captured` that are literals."""
    moved = [inside and isinstance(value.owner, ConstantOp) for value in captured]
    passed = [value for value, is_moved in zip(captured, moved, strict=True) if not is_moved]
    types = [value.type for value in states], [value.type for value in passed]
    block = Block(arg_types=[NUMBER, *types[0], row_type(rows), *types[1]])
    turn, *given = block.args
    count = len(states)
    for argument, name in zip(block.args, ("turn", *("h", "c")[:count], "row"), strict=False):
        argument.name_hint = name
    for argument, value in zip(given[count + 1 :], passed, strict=True):
        show_as(argument, value)
    with ImplicitBuilder(block):
        rest = iter(given[count + 1 :])
        seen = [
            _again(value) if is_moved else next(rest)
            for value, is_moved in zip(captured, moved, strict=True)
        ]
        following, stacked = step(turn, given[count], given[:count], seen)
        YieldOp([*following, *stacked])
    return LoopOp(
        shape_of(rows)[0],
        Region(block),
        carried=states,
        scanned=[rows],
        captured=passed,
        reverse=reverse,
    )


def _again(value: SSAValue) -> SSAValue:
    """The literal once more."""
    assert isinstance(value.owner, ConstantOp)
    return ConstantOp(value.owner.literal).result


CELLS: dict[str, type[Cell]] = {"RNN": RnnCell, "GRU": GruCell, "LSTM": LstmCell}
"""The cells by operator."""


@lowers(*CELLS)
def recurrent(node: Node) -> Lowered:
    directions, _, hidden = shape_of(node[2])
    return Layer(node, cells_of(node, CELLS[node.op.op_type], hidden, directions)).outputs()


def cells_of(node: Node, kind: type[Cell], hidden: int, directions: int) -> list[Cell]:
    """The cell of each direction."""
    names = kind.FUNCTIONS * directions
    if "activations" in node.op.onnx_attributes():
        names = node.texts("activations")
    functions, count = activations(node, names), len(kind.FUNCTIONS)
    return [
        kind(
            hidden,
            computing(node),
            functions[first : first + count],
            node.real("clip"),
            bool(node.integer(kind.VARIANT)),
        )
        for first in range(0, count * directions, count)
    ]


DIRECTIONS = ("forward", "reverse", "bidirectional")

chooses("GRU", direction=(*DIRECTIONS, "foward"))  # which is the default of version 1


chooses("LSTM", "RNN", direction=DIRECTIONS)
