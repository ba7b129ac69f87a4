"""Loops over a lowered body: a graphcore loop, or unrolled iterations if shapes change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.control import yield_of
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.program import YieldOp
from popgraph.dialects.program.control_signatures import NUMBER, UNBOUNDED, row_type
from popgraph.operators.bodies import close, discard
from popgraph.operators.context import Moved
from popgraph.operators.data_sizes import Extent
from popgraph.operators.elements import (
    described,
    extended,
    flat,
    is_held,
    joined,
    packed,
    parts_of,
    rows_as_elements,
    types_of,
)
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.support.errors import NeedsHostError, TypeMismatchError, UnsupportedError
from popgraph.support.names import hint


@dataclass(frozen=True)
class Iteration:
    """The results of a body in one iteration."""

    go: SSAValue | None
    """Whether another iteration follows; None if the body has no condition."""
    carried: Sequence[SSAValue]
    rows: Sequence[SSAValue]
    """The tensors to stack, then the sequences to append."""


Body: TypeAlias = Callable[[SSAValue, Sequence[SSAValue], Sequence[SSAValue]], Iteration]
"""Lowers a body at the insertion point, for an iteration number, states and scanned rows."""

Results: TypeAlias = tuple[Sequence[SSAValue], Sequence[SSAValue]]
"""The final states, and the stacked rows of all iterations."""


@dataclass(frozen=True)
class LoopControl:
    """The number of iterations, its run-time conditions, and the direction."""

    trips: int
    """The largest trip count."""
    limit: SSAValue | None = None
    """The trip count, if it is only known at run time."""
    go: SSAValue | None = None
    """Whether the first iteration runs, if that is only known at run time."""
    reverse: bool = False
    """Whether rows are scanned from the last to the first."""


@dataclass(frozen=True)
class Repetition:
    """A body, its initial states, and the tensors it scans."""

    node: Node
    body: Body
    carried: Sequence[SSAValue]
    scanned: Sequence[SSAValue]
    states: Sequence[str]
    """The names of the carried states."""
    row_names: Sequence[str]
    appended: Mapping[str, SSAValue] = field(default_factory=dict)
    """Sequences that each iteration appends to, by their names."""

    def results(self, control: LoopControl) -> Results:
        """Builds the loop at the insertion point, and returns its results."""
        if not control.trips and not self.row_names:
            return self.carried, [*self.appended.values()]
        trial = _Trial(self)
        try:
            iteration = trial.lowered(control)
        except UnsupportedError as error:
            if not control.trips:
                raise
            # Such as a size that depends on the iteration number: unrolled, it is a constant.
            return self._unrolled(control, error, is_conditional=True)
        if not control.trips:
            trial.discard()
            nothing = [self._nothing(row) for row in iteration.rows[: len(self.row_names)]]
            return self.carried, [*nothing, *self.appended.values()]
        continues = self._known_go(iteration)
        if continues is False:
            control = replace(control, trips=min(control.trips, 1))
        is_conditional = continues is None and not (control.trips == 1 and control.go is None)
        is_unknown = is_conditional and iteration.rows and not self._is_bounded(control)
        refusal = self._growth(iteration) or (self._unknown_count() if is_unknown else None)
        if refusal is not None:
            trial.discard()
            return self._unrolled(control, refusal, is_conditional=is_conditional)
        if control.trips == UNBOUNDED and control.limit is None and not is_conditional:
            raise never_ends()
        if not trial.moved:
            return trial.as_loop(control, iteration, is_conditional)
        trial.discard()
        return self._with_variables(list(trial.moved), control, is_conditional)

    def _with_variables(
        self, variables: Sequence[SSAValue], control: LoopControl, is_conditional: bool
    ) -> Results:
        """A loop that also carries the variables that its body updates."""
        lowering, count = self.node.lowering, len(self.carried)

        def body(
            number: SSAValue, carried: Sequence[SSAValue], rows: Sequence[SSAValue]
        ) -> Iteration:
            for variable, value in zip(variables, carried[count:], strict=True):
                lowering.update(variable, value)
            iteration = self.body(number, carried[:count], rows)
            return replace(
                iteration, carried=[*iteration.carried, *map(lowering.current, variables)]
            )

        carried = [*self.carried, *map(lowering.current, variables)]
        trial = _Trial(replace(self, body=body, carried=carried))
        finals, stacked = trial.as_loop(control, trial.lowered(control), is_conditional)
        for variable, value in zip(variables, finals[count:], strict=True):
            lowering.update(variable, value)
        return finals[:count], stacked

    def _is_bounded(self, control: LoopControl) -> bool:
        """Whether a training step may compute rows up to a static bound, with padding."""
        is_known = control.trips != UNBOUNDED
        return self.node.lowering.training and is_known and not self.appended

    def _nothing(self, row: SSAValue) -> SSAValue:
        """The stacked rows of zero iterations."""
        return self.node.literal(np.zeros((0, *shape_of(row)), dtype_of(row).numpy))

    def _known_go(self, iteration: Iteration) -> bool | None:
        """Whether another iteration follows, if that is known at compile time."""
        if iteration.go is None:
            return True
        known = self.node.lowering.array(iteration.go)
        return None if known is None else bool(known)

    # Unrolling

    def _unrolled(
        self, control: LoopControl, refusal: UnsupportedError, *, is_conditional: bool
    ) -> Results:
        """
        Unrolls all iterations, each with shapes of its own.

        Raises `refusal` if there may be too many, or if their number depends on data. If
        `is_conditional`, the body's condition may end the loop before `control` does.
        """
        if control.trips == UNBOUNDED and control.limit is None and not is_conditional:
            raise never_ends()
        lowering = self.node.lowering
        most = lowering.tuning.most_unrolled_turns // lowering.repeated
        if control.limit or control.go or (control.trips > most and not is_conditional):
            raise refusal
        carried, rows = self.carried, list[Sequence[SSAValue]]()
        with lowering.unrolling(min(control.trips, most)):
            for number in range(control.trips):
                if number == most:
                    raise refusal
                iteration = self._iteration(control, number, carried)
                carried, rows = iteration.carried, [*rows, iteration.rows]
                continues = self._known_go(iteration)
                if continues is None and number + 1 < control.trips:
                    raise refusal
                if not continues:
                    break
        return carried, self._stacked(rows[::-1] if control.reverse else rows)

    def _iteration(
        self, control: LoopControl, number: int, carried: Sequence[SSAValue]
    ) -> Iteration:
        """One unrolled iteration; its number is a literal."""
        at = control.trips - 1 - number if control.reverse else number
        rows = [row_of(value, at) for value in self.scanned]
        iteration = self.body(self.node.literal(np.array(at)), carried, rows)
        self._check_types(iteration)
        return iteration

    def _stacked(self, iterations: Sequence[Sequence[SSAValue]]) -> list[SSAValue]:
        """The stacked rows and extended sequences of all unrolled iterations."""
        columns = list(zip(*iterations, strict=True))
        tensors = zip(self.row_names, columns, strict=False)
        grown = zip(self.appended.values(), columns[len(self.row_names) :], strict=True)
        return [
            *(self._one_tensor(name, parts) for name, parts in tensors),
            *(
                extended(first, [part for one in sequences for part in parts_of(one)])
                for first, sequences in grown
            ),
        ]

    def _one_tensor(self, name: str, parts: Sequence[SSAValue]) -> SSAValue:
        for part in parts:
            if part.type != parts[0].type:
                raise TypeMismatchError(
                    f"the rows of output {name!r} of {self.node.op.op_type} differ: "
                    f"{describe(parts[0].type)} and {describe(part.type)}",
                    hint="give rows of one shape in all iterations",
                )
        rows = [gc.ReshapeOp(part, shape=(1, *shape_of(part))) for part in parts]
        return SSAValue.get(rows[0] if len(rows) == 1 else gc.ConcatOp(rows, axis=0))

    # Errors

    def _check_types(self, iteration: Iteration) -> None:
        """Raises an error for a state that changes its element type."""
        for name, old, new in zip(self.states, self.carried, iteration.carried, strict=True):
            if not (is_held(old) or is_held(new)) and dtype_of(old) != dtype_of(new):
                raise TypeMismatchError(
                    f"the state {name!r} of {self.node.op.op_type} is {describe(old.type)} "
                    f"before an iteration and {describe(new.type)} after it",
                    hint="convert it with Cast: a state must keep its type",
                )

    def _growth(self, iteration: Iteration) -> UnsupportedError | None:
        """The error for a state that changes its shape, if any."""
        self._check_types(iteration)
        most = self.node.lowering.tuning.most_unrolled_turns
        for name, old, new in zip(self.states, self.carried, iteration.carried, strict=True):
            if old.type != new.type:
                return NeedsHostError(
                    f"the state {name!r} of {self.node.op.op_type} changes from "
                    f"{described(old)} to {described(new)} in an iteration",
                    hint=f"let the state keep its shape, or make the trip count a constant of "
                    f"at most {most}",
                )
        for name, new in zip(self.appended, iteration.rows[len(self.row_names) :], strict=True):
            if len(set(types_of([new]))) != 1:
                return NeedsHostError(
                    f"{self.node.op.op_type} appends {described(new)} of different shapes to the "
                    f"state {name!r} in an iteration",
                    hint=f"make the trip count a constant of at most {most}",
                )
        return None

    def _unknown_count(self) -> UnsupportedError:
        states = [f"state {name!r}" for name in self.appended]
        first, *_ = [f"output {name!r}" for name in self.row_names] + states
        return NeedsHostError(
            f"{first} of {self.node.op.op_type} has a row for each iteration, "
            "but the trip count depends on data",
            hint="make the trip count a constant, or carry a tensor of a static size and write "
            "into it",
        )


def never_ends() -> UnsupportedError:
    return UnsupportedError(
        "this Loop never ends: it has no trip count, and its condition stays true",
        hint="give it a trip count, or a condition that its body can change",
    )


class _Trial:
    """A body lowered for a symbolic iteration number, in a block of its own."""

    def __init__(self, repetition: Repetition) -> None:
        self.repetition = repetition
        states = types_of(repetition.carried)
        rows = map(row_type, repetition.scanned)
        self.block = Block(arg_types=[NUMBER, *states, *rows])
        self.moved: Moved = {}
        """The variables that the body updates."""

    def lowered(self, control: LoopControl) -> Iteration:
        number, *rest = self.block.args
        carried = self.repetition.carried
        count = len(types_of(carried))
        self.repetition.node.lowering.trips[number] = control.trips
        with self.repetition.node.lowering.writing(self.block, number) as self.moved:
            iteration = self.repetition.body(number, packed(rest[:count], carried), rest[count:])
        self._name(number, rest[:count], rest[count:])
        return iteration

    def _name(self, number: SSAValue, states: Sequence[SSAValue], rows: Sequence[SSAValue]) -> None:
        """Names the arguments in IR text, unless the body has named them."""
        pairs = zip(self.repetition.states, self.repetition.carried, strict=False)
        named = ["turn", *(hint(name) for name, value in pairs for _ in types_of([value]))]
        variables = ["variable"] * (1 + len(states) - len(named))
        names = [*named, *variables, *["row" for _ in rows]]
        for value, name in zip((number, *states, *rows), names, strict=True):
            value.name_hint = value.name_hint or name

    def discard(self) -> None:
        discard(self.block)

    def as_loop(self, control: LoopControl, iteration: Iteration, is_conditional: bool) -> Results:
        """The loop with this body; if `is_conditional`, the body's condition may end it."""
        literal, go = self.repetition.node.literal, control.go
        if go is None and is_conditional:
            go = literal(np.array(True))
        with ImplicitBuilder(self.block):
            first = [] if go is None else [iteration.go or literal(np.array(True))]
            start = len(self.repetition.row_names)
            appended = [joined(one, 0, is_new=True) for one in iteration.rows[start:]]
            YieldOp([*first, *flat(iteration.carried), *iteration.rows[:start], *appended])
        captured = close([self.block])
        loop = gc.LoopOp(
            control.trips,
            Region(self.block),
            carried=flat(self.repetition.carried),
            scanned=self.repetition.scanned,
            captured=captured,
            go=go,
            limit=control.limit,
            reverse=control.reverse,
        )
        finals, stacked = packed(loop.finals, self.repetition.carried), loop.stacked
        if is_conditional and stacked:
            sizes, extents = self.repetition.node.lowering.data_sizes, {0: Extent(_counted(loop))}
            return finals, [sizes.bounded(rows, extents) for rows in stacked]
        grown = zip(self.repetition.appended.values(), stacked[start:], strict=True)
        return finals, [*stacked[:start], *(_appended(first, rows) for first, rows in grown)]


def _appended(first: SSAValue, rows: SSAValue) -> SSAValue:
    """A sequence, extended by the tensors that each iteration appends."""
    trips, count, *shape = shape_of(rows)
    return extended(first, [rows_as_elements(reshaped(rows, (trips * count, *shape)))])


def _counted(loop: gc.LoopOp) -> SSAValue:
    """The number of iterations that a loop runs."""
    with ImplicitBuilder(Builder(InsertPoint.before(loop))):
        none = scalar(0, loop.index)
    with ImplicitBuilder(Builder(InsertPoint.before(yield_of(loop.block)))):
        following = gc.AddOp(loop.index, scalar(1, loop.index))
    return loop.carry(none.result, following.result)


def row_of(value: SSAValue, at: int) -> SSAValue:
    """One row of a tensor, without its axis."""
    return SSAValue.get(reshaped(SSAValue.get(sliced(value, {0: (at, 1, 1)})), shape_of(value)[1:]))
