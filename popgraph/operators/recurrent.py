"""
RNN, GRU and LSTM, and PopART's LSTM, which has another weight layout.

One matmul projects the inputs of all steps; a loop over the steps computes the recurrence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.control import LoopOp
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import ConstantOp, YieldOp, constant_array
from popgraph.dialects.program.control_signatures import NUMBER, row_type
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.bodies import show_as
from popgraph.operators.complaints import differ, of_rank, of_shape
from popgraph.operators.movement import sliced
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, chooses, lowers, requires
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape

Values: TypeAlias = Sequence[SSAValue]
Activation: TypeAlias = Callable[[Operand], SSAValue]

# Activations of gates, by their ONNX names


class Gate(NamedTuple):
    """The input of an activation, and the node that creates its literals."""

    node: Node
    x: Operand

    def number(self, value: float) -> SSAValue:
        return self.node.scalar(value, dtype_of(self.x))

    def scaled(self, factor: float, value: Operand | None = None) -> Operand:
        value = self.x if value is None else value
        return value if factor == 1 else gc.MulOp(value, self.number(factor))

    def affine(self, alpha: float, beta: float) -> Operand:
        scaled = self.scaled(alpha)
        return scaled if beta == 0 else gc.AddOp(scaled, self.number(beta))

    def at_least(self, bound: float) -> SSAValue:
        return gc.CompareOp(self.x, self.number(bound), predicate="ge").result

    def hard_sigmoid(self, alpha: float, beta: float) -> Operand:
        raised = gc.MaxOp(self.affine(alpha, beta), self.number(0.0))
        return gc.MinOp(raised, self.number(1.0))

    def elu(self, alpha: float) -> Operand:
        """x if x >= 0 else alpha * (e^x - 1); e^0 replaces e^x for x >= 0, to avoid overflow."""
        above = self.at_least(0.0)
        below = gc.Expm1Op(gc.WhereOp(above, self.number(0.0), self.x))
        return gc.WhereOp(above, self.x, self.scaled(alpha, below))

    def softsign(self) -> Operand:
        return gc.DivOp(self.x, gc.AddOp(gc.AbsOp(self.x), self.number(1.0)))

    def softplus(self) -> Operand:
        """log(1 + e^x), whose exponential cannot overflow."""
        tail = gc.Log1pOp(gc.ExpOp(gc.NegOp(gc.AbsOp(self.x))))
        return gc.AddOp(gc.MaxOp(self.x, self.number(0.0)), tail)


FUNCTIONS: dict[str, tuple[Callable[..., Operand], *tuple[float | None, ...]]] = {
    "Relu": (lambda gate: gc.ReluOp(gate.x),),
    "Tanh": (lambda gate: gc.TanhOp(gate.x),),
    "Sigmoid": (lambda gate: gc.SigmoidOp(gate.x),),
    "Affine": (Gate.affine, 1.0, 0.0),
    "LeakyRelu": (lambda gate, alpha: gc.LeakyReluOp(gate.x, alpha=alpha), 0.01),
    "ThresholdedRelu": (
        lambda gate, alpha: gc.WhereOp(gate.at_least(alpha), gate.x, gate.number(0.0)),
        1.0,
    ),
    "ScaledTanh": (
        lambda gate, alpha, beta: gate.scaled(alpha, gc.TanhOp(gate.scaled(beta))),
        None,
        None,
    ),
    "HardSigmoid": (Gate.hard_sigmoid, 0.2, 0.5),
    "Elu": (Gate.elu, 1.0),
    "Softsign": (Gate.softsign,),
    "Softplus": (Gate.softplus,),
}
"""The activations, with the defaults of alpha and beta; None: required."""

_BY_LOWER = {name.lower(): function for name, function in FUNCTIONS.items()}
"""Activations by lower-case name, since exporters differ in case."""


def _activation(node: Node, name: str, given: Sequence[Iterator[float]]) -> Activation:
    """An activation by name, which consumes its parameters from the node's lists in order."""
    if name.lower() not in _BY_LOWER:
        raise TypeMismatchError(
            f"{name!r} is not an activation of {node.op.op_type}",
            hint=f"use one of {', '.join(FUNCTIONS)}",
        )
    function, *defaults = _BY_LOWER[name.lower()]
    taken = [next(one, default) for one, default in zip(given, defaults, strict=False)]
    if None in taken:
        raise TypeMismatchError(
            f"the activation {name} has no default parameters",
            hint="give activation_alpha and activation_beta",
        )
    parameters = [float(np.float32(number)) for number in taken if number is not None]
    return lambda x: SSAValue.get(function(Gate(node, x), *parameters))


# Cells


@dataclass(frozen=True)
class Cell(ABC):
    """
    One step of a layer in one direction, and its weights.

    Weights and states have the element type of the model; f16 and bf16 gates are computed in f32.
    """

    hidden: int
    wide: DType
    functions: Sequence[Activation]
    clip: float
    """Inputs of activations are clamped to [-clip, clip]; 0 disables this."""
    varied: bool
    """Whether the attribute `VARIANT` is set."""

    GATES: ClassVar[int]
    FUNCTIONS: ClassVar[tuple[str, ...]]
    """The default activations."""
    VARIANT: ClassVar[str] = ""
    """The boolean attribute that selects a variant of the cell."""
    STATES: ClassVar[tuple[int, ...]] = (5,)
    """The indices of the inputs with initial states, h first."""

    @abstractmethod
    def weights(self, own: Weights) -> tuple[Values, SSAValue | None]:
        """The weights that each step reads, and the bias of the projection of all inputs."""

    @abstractmethod
    def step(self, row: SSAValue, states: Values, weights: Values) -> Values:
        """The next states; `row` is the projected input of the step."""

    def gates(self, value: Operand, count: int) -> list[SSAValue]:
        """The gates in a row of concatenated gates, in the type of the computation."""
        value = SSAValue.get(value)
        columns = shape_of(value)[1]
        size = columns // count
        return [self.widened(sliced(value, {1: (at, size, 1)})) for at in range(0, columns, size)]

    def widened(self, value: Operand) -> SSAValue:
        return cast(value, self.wide)

    def activated(self, place: int, value: Operand) -> SSAValue:
        """An activation of the clipped value."""
        if self.clip:
            low, high = (scalar(bound, value) for bound in (-self.clip, self.clip))
            value = gc.MinOp(gc.MaxOp(value, low), high)
        return self.functions[place](value)

    def rest(self, gate: SSAValue) -> SSAValue:
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
    """n = g(x W + r (h R)) instead of g(x W + (r h) R)."""

    def weights(self, own: Weights) -> tuple[Values, SSAValue | None]:
        if not self.varied:
            return [own.recurrence(0, 2), own.recurrence(2, 3)], own.whole_bias()
        every = own.recurrence(0, self.GATES)
        if not own.has_bias:
            return [every], None
        # The reset gate also scales the recurrent bias of the hidden gate, so it is added inside.
        outside = gc.AddOp(
            own.bias(0, 3),
            gc.PadOp(own.bias(3, 5), low=(0,), high=(self.hidden,), interior=(0,), value=0.0),
        )
        return [every, own.bias(5, 6)], outside.result

    def step(self, row: SSAValue, states: Values, weights: Values) -> Values:
        (state,) = states
        before = self.widened(state)
        x_z, x_r, x_n = self.gates(row, 3)
        h_z, h_r, *h_n = self.gates(gc.MatMulOp(state, weights[0]), 3 if self.varied else 2)
        if self.varied and len(weights) > 1:
            h_n = [gc.AddOp(h_n[0], self.widened(weights[1])).result]
        update, reset = (self.activated(0, gc.AddOp(x, h)) for x, h in ((x_z, h_z), (x_r, h_r)))
        if self.varied:
            inner: Operand = gc.MulOp(reset, h_n[0])
        else:
            kept = cast(gc.MulOp(reset, before), dtype_of(state))
            inner = self.widened(gc.MatMulOp(kept, weights[1]))
        new = self.activated(1, gc.AddOp(x_n, inner))
        return [gc.AddOp(gc.MulOp(self.rest(update), new), gc.MulOp(update, before)).result]


@dataclass(frozen=True)
class LstmCell(Cell):
    """c' = f c + i n,  h' = o tanh(c'), of the gates i, o, f and n (cell), in this order"""

    GATES = 4
    FUNCTIONS = ("Sigmoid", "Tanh", "Tanh")
    VARIANT = "input_forget"
    """f = 1 - i."""
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
            """A gate, with a peephole to the cell if there are any."""
            if peepholes:
                seen = gc.MulOp(self.widened(peepholes[place]), seen)
                value = gc.AddOp(value, seen).result
            return self.activated(0, value)

        entering = gate(i, 0, before)
        kept = self.rest(entering) if self.varied else gate(f, 2, before)
        new = self.activated(1, n)
        after = gc.AddOp(gc.MulOp(kept, before), gc.MulOp(entering, new)).result
        return [gc.MulOp(gate(o, 1, after), self.activated(2, after)).result, after]


CELLS: dict[str, type[Cell]] = {"RNN": RnnCell, "GRU": GruCell, "LSTM": LstmCell}
DIRECTIONS = ("forward", "reverse", "bidirectional")


def cells_of(node: Node, kind: type[Cell], hidden: int, directions: int) -> list[Cell]:
    """The cell of each direction."""
    named = node.gives("activations")
    names = node.texts("activations") if named else kind.FUNCTIONS * directions
    given = [iter(node.reals(name)) for name in ("activation_alpha", "activation_beta")]
    functions = [_activation(node, name, given) for name in names]
    count = len(kind.FUNCTIONS)
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


# Legal nodes


@requires(*CELLS)
def recurrence(node: NodeView) -> Conflicts:
    kind = CELLS[node.op.op_type]
    directions = 2 if node.text("direction") == "bidirectional" else 1
    for index in range(3):
        yield from of_rank(node, index, 3)
    yield from _attributes(node, directions * len(kind.FUNCTIONS))
    x, recurrent = node.shape_of(0), node.shape_of(2)
    if x is None or recurrent is None:
        return
    hidden = recurrent[2]
    if hidden == 0:
        yield TypeConflict("the state has no elements", "the last axis of `R` must be 1 or more")
    given = node.integer("hidden_size", -1)
    if node.gives("hidden_size") and differ(hidden, given):
        yield TypeConflict(
            f"`hidden_size` is {given}, but `R` is for {hidden}", "both must be equal"
        )

    def rows(count: int) -> Dim:
        return count * hidden if isinstance(hidden, int) else None

    by_batch = bool(node.integer("layout"))
    batch = x[0] if by_batch else x[1]
    state = (batch, directions, hidden) if by_batch else (directions, batch, hidden)
    wanted: dict[int, Sequence[Dim]] = {
        1: (directions, rows(kind.GATES), x[2]),
        2: (directions, rows(kind.GATES), hidden),
        3: (directions, rows(2 * kind.GATES)),
        7: (directions, rows(3)),
        4: (batch,),
        5: state,
        6: state,
    }
    for index, shape in wanted.items():
        if node.has(index):
            yield from of_shape(node, index, *shape)


def _attributes(node: NodeView, activations: int) -> Conflicts:
    given = len(node.texts("activations"))
    if node.gives("activations") and given != activations:
        yield TypeConflict(f"`activations` has {given} elements", f"give {activations}")
    clip = node.real("clip")
    if node.gives("clip") and not clip > 0:
        yield TypeConflict(f"`clip` is {clip:g}", "it must be more than 0")


chooses("GRU", direction=(*DIRECTIONS, "foward"))  # which is the default of version 1
chooses("LSTM", "RNN", direction=DIRECTIONS)


# Lowering


@dataclass(frozen=True)
class Weights:
    """The weights of one direction of a node; matrices are transposed to [inputs, gates]."""

    node: Node
    direction: int
    hidden: int

    INPUT, RECURRENCE, BIAS, PEEPHOLES = 1, 2, 3, 7

    def inputs(self) -> SSAValue:
        """The input projection W."""
        return gc.TransposeOp(one(self.node[self.INPUT], self.direction), perm=(1, 0)).result

    def recurrence(self, first: int, last: int) -> SSAValue:
        return self._part(self.RECURRENCE, first, last)

    @property
    def has_bias(self) -> bool:
        return self.node.has(self.BIAS)

    def bias(self, first: int, last: int) -> SSAValue:
        return self._part(self.BIAS, first, last)

    def whole_bias(self) -> SSAValue | None:
        """The sum of the input and the recurrent bias."""
        if not self.has_bias:
            return None
        count = shape_of(self.node[self.BIAS])[1] // self.hidden
        halves = self.bias(0, count // 2), self.bias(count // 2, count)
        return gc.AddOp(*halves).result

    def peepholes(self) -> Values:
        if not self.node.has(self.PEEPHOLES):
            return []
        return [self._part(self.PEEPHOLES, place, place + 1) for place in range(3)]

    def _part(self, index: int, first: int, last: int) -> SSAValue:
        """The weights of gates `first` to `last`; constants are transposed at compile time."""
        start, size = first * self.hidden, (last - first) * self.hidden
        known = never_changes(self.node, self.node[index])
        if known is not None:
            rows = known[self.direction, start : start + size]
            return self.node.literal(np.ascontiguousarray(rows.T))
        own = one(self.node[index], self.direction)
        if shape_of(own)[0] != size:
            own = SSAValue.get(sliced(own, {0: (start, size, 1)}))
        return own if len(shape_of(own)) == 1 else gc.TransposeOp(own, perm=(1, 0)).result


def never_changes(node: Node, value: SSAValue) -> Array | None:
    """The elements of a constant in inference; None in training, which may differentiate it."""
    return None if node.lowering.training else constant_array(value, node.lowering.weights)


def one(value: SSAValue, direction: int) -> SSAValue:
    """The slice of a tensor for one direction; directions are the first axis."""
    count, *rest = shape_of(value)
    if count > 1:
        value = SSAValue.get(sliced(value, {0: (direction, 1, 1)}))
    return gc.ReshapeOp(value, shape=rest).result


@dataclass(frozen=True)
class Layer:
    """A recurrent node, and its cell for each direction."""

    node: Node
    cells: Sequence[Cell]

    @cached_property
    def x(self) -> SSAValue:
        """The input, [steps, batch, features]."""
        return self._in_time(self.node[0])

    def _in_time(self, value: SSAValue) -> SSAValue:
        """A tensor with the batch as its second axis; with `layout` 1 it was the first."""
        by_batch = self.node.integer("layout")
        return gc.TransposeOp(value, perm=(1, 0, 2)).result if by_batch else value

    @cached_property
    def lengths(self) -> SSAValue | None:
        """The lengths of the sequences as a column; None if all have the full length."""
        given = self.node.optional(4)
        if given is None:
            return None
        steps, batch, _ = shape_of(self.x)
        known = constant_array(given, self.node.lowering.weights)
        if known is None:
            return cast(gc.ReshapeOp(given, shape=(batch, 1)), dtypes.BY_NAME["i64"])
        if bool((known.astype(np.int64) >= steps).all()):
            return None
        return self.node.literal(known.reshape(batch, 1).astype(np.int64))

    @property
    def stacks(self) -> bool:
        """Whether the node returns the outputs of all steps."""
        return self.node.wants(0)

    def weights(self, direction: int, cell: Cell) -> Weights:
        return Weights(self.node, direction, cell.hidden)

    def initial(self, index: int, direction: int, cell: Cell) -> SSAValue:
        """An initial state; 0 by default."""
        given = self.node.optional(index)
        return self.zero(cell) if given is None else one(self._in_time(given), direction)

    def zero(self, cell: Cell) -> SSAValue:
        batch = shape_of(self.x)[1]
        return gc.BroadcastOp(self.node.scalar(0.0), shape=(batch, cell.hidden)).result

    def outputs(self) -> Lowered:
        """The outputs of all steps, and the final states."""
        loops = self.loops()
        finals = [
            self._in_time(_side_by_side(states, axis=0))
            for states in zip(*(loop.finals for loop in loops), strict=True)
        ]
        if not self.stacks:
            return [None, *finals]
        joined = _side_by_side([loop.stacked[0] for loop in loops], axis=1)
        if self.node.integer("layout"):
            joined = gc.TransposeOp(joined, perm=(2, 0, 1, 3)).result
        return [joined, *finals]

    def loops(self) -> list[LoopOp]:
        """The loop of each direction."""
        is_reverse = self.node.text("direction") == "reverse"
        return [
            self._loop(place, cell, reverse=is_reverse or place == 1)
            for place, cell in enumerate(self.cells)
        ]

    def _loop(self, direction: int, cell: Cell, reverse: bool) -> LoopOp:
        """The loop of one direction; in inference, constants are copied into its body."""
        own = self.weights(direction, cell)
        weights, bias = cell.weights(own)
        lengths = self.lengths
        captured = [*weights] if lengths is None else [lengths, *weights]
        inside = list(map(self._literal, captured))
        passed = [value for value, literal in zip(captured, inside, strict=True) if not literal]
        states = [self.initial(index, direction, cell) for index in cell.STATES]
        rows, count = self._projected(own, bias), len(states)
        carried, outer = ([value.type for value in group] for group in (states, passed))
        block = Block(arg_types=[NUMBER, *carried, row_type(rows), *outer])
        step, *given = block.args
        for argument, name in zip(block.args, ("turn", *("h", "c")[:count], "row"), strict=False):
            argument.name_hint = name
        for argument, value in zip(given[count + 1 :], passed, strict=True):
            show_as(argument, value)
        with ImplicitBuilder(block):
            rest = iter(given[count + 1 :])
            seen = [
                ConstantOp(literal.literal).result if literal else next(rest) for literal in inside
            ]
            length = None if lengths is None else seen.pop(0)
            made = cell.step(given[count], given[:count], seen)
            new = [cast(value, dtype_of(rows)) for value in made]
            YieldOp(self._masked(new, given[:count], step, length))
        return LoopOp(
            shape_of(rows)[0],
            Region(block),
            carried=states,
            scanned=[rows],
            captured=passed,
            reverse=reverse,
        )

    def _projected(self, own: Weights, bias: SSAValue | None) -> SSAValue:
        """The inputs of all steps times W, in one matmul, plus the bias."""
        steps, batch, features = shape_of(self.x)
        flat = gc.ReshapeOp(self.x, shape=(steps * batch, features))
        product: Operand = gc.MatMulOp(flat, own.inputs())
        if bias is not None:
            product = gc.AddOp(product, bias)
        return gc.ReshapeOp(product, shape=(steps, batch, shape_of(product)[1])).result

    def _literal(self, value: SSAValue) -> ConstantOp | None:
        """The constant that a value is; None in training, which may differentiate it."""
        if self.node.lowering.training or not isinstance(value.owner, ConstantOp):
            return None
        return value.owner

    def _masked(self, new: Values, old: Values, step: SSAValue, length: SSAValue | None) -> Values:
        """The next states and the row to stack; after a sequence's end, old states and 0."""
        rows = new[:1] if self.stacks else []
        if length is None:
            return [*new, *rows]
        runs = gc.CompareOp(step, length, predicate="lt").result
        states = [gc.WhereOp(runs, *pair).result for pair in zip(new, old, strict=True)]
        return [*states, *(gc.WhereOp(runs, row, scalar(0.0, row)).result for row in rows)]


def _side_by_side(values: Values, axis: int) -> SSAValue:
    """Stacks the values of all directions along a new axis."""
    shape = shape_of(values[0])
    alone = (*shape[:axis], 1, *shape[axis:])
    parts = [gc.ReshapeOp(value, shape=alone).result for value in values]
    return parts[0] if len(parts) == 1 else gc.ConcatOp(parts, axis=axis).result


@lowers(*CELLS)
def recurrent(node: Node) -> Lowered:
    directions, _, hidden = shape_of(node[2])
    return Layer(node, cells_of(node, CELLS[node.op.op_type], hidden, directions)).outputs()


# PopART's LSTM


ORDER = tuple(map("fico".index, "iofc"))
"""The indices of ONNX's gates (iofc) in PopART's order (fico)."""


@dataclass(frozen=True)
class PopartWeights(Weights):
    """PopART's layout: per gate, W above R in one matrix, and one bias."""

    def inputs(self) -> SSAValue:
        return self._matrix(0, self.node.shape[2])

    def recurrence(self, first: int, last: int) -> SSAValue:
        assert (first, last) == (0, LstmCell.GATES), "an LSTM cell reads all gates at once"
        return self._matrix(self.node.shape[2], self.hidden)

    def whole_bias(self) -> SSAValue | None:
        bias = self.node.optional(2)
        if bias is None:
            return None
        return gc.ReshapeOp(_in_order(bias), shape=(LstmCell.GATES * self.hidden,)).result

    def peepholes(self) -> Values:
        return []

    def _matrix(self, start: int, size: int) -> SSAValue:
        """Rows `start` to `start + size` of all gates, concatenated along columns."""
        shape = size, LstmCell.GATES * self.hidden
        known = never_changes(self.node, self.node[1])
        if known is not None:
            rows = known[list(ORDER), start : start + size].transpose(1, 0, 2)
            return self.node.literal(np.ascontiguousarray(rows.reshape(shape)))
        own = SSAValue.get(sliced(self.node[1], {1: (start, size, 1)}))
        return gc.ReshapeOp(gc.TransposeOp(_in_order(own), perm=(1, 0, 2)), shape=shape).result


def _in_order(gates: SSAValue) -> Operand:
    """Reorders the gates along the first axis from PopART's to ONNX's order."""
    return gc.ConcatOp([sliced(gates, {0: (place, 1, 1)}) for place in ORDER], axis=0)


class PopartLayer(Layer):
    """A layer with one direction, and both initial states in one tensor."""

    @property
    def stacks(self) -> bool:
        return bool(self.node.integer("outputFullSequence", 1))

    def weights(self, direction: int, cell: Cell) -> Weights:
        return PopartWeights(self.node, direction, cell.hidden)

    def initial(self, index: int, direction: int, cell: Cell) -> SSAValue:
        given = self.node.optional(3)
        return self.zero(cell) if given is None else one(given, cell.STATES.index(index))


@lowers("LSTM", domain=GRAPHCORE)
def popart_lstm(node: Node) -> Lowered:
    x, weights = node.shape, shape_of(node[1])
    if len(x) != 3 or len(weights) != 3:
        raise TypeMismatchError("LSTM requires sequences and weights of 3 axes")
    hidden = weights[2]
    wanted: dict[int, Shape] = {
        1: (LstmCell.GATES, x[2] + hidden, hidden),
        2: (LstmCell.GATES, hidden),
        3: (len(LstmCell.STATES), x[1], hidden),
    }
    for index, shape in wanted.items():
        given = node.optional(index)
        if given is not None and shape_of(given) != shape:
            raise TypeMismatchError(
                f"input {index} of LSTM has the shape {list(shape_of(given))}",
                hint=f"the other inputs require {list(shape)}",
            )
    (loop,) = PopartLayer(node, cells_of(node, LstmCell, hidden, directions=1)).loops()
    output, cell = loop.finals
    return [loop.stacked[0] if loop.stacked else output, cell]
