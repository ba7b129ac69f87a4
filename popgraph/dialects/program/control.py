"""Control flow: the signatures and the meaning of branches and loops, whatever their bodies are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypedDict, TypeVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType, UnitAttr, i1, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    IRDLOperation,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    var_operand_def,
    var_result_def,
)
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects import element_types
from popgraph.dialects.program.interned import tensor_type
from popgraph.support.arrays import Array

Body: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]
"""From the arrays that a body gets to those that it gives."""

Item = TypeVar("Item")

UNBOUNDED = 2**63 - 1
"""The trips of a loop that only its condition, or a limit known at run time, ends."""

TRUTH = tensor_type(i1, ())
"""The type of conditions."""

NUMBER = tensor_type(i64, ())
"""The type of the number of a turn, and of limits."""

GROUPS = ("carried", "scanned", "captured")
"""What a loop takes beside what steers it; its body has an argument for each of them."""


def _tensor(value: SSAValue) -> TensorType[Attribute]:
    assert isinstance(value.type, TensorType)
    return value.type


def stacked_type(trips: int, row: Attribute) -> TensorType[Attribute]:
    """The type of the rows of all turns."""
    assert isinstance(row, TensorType)
    return tensor_type(row.element_type, (trips, *row.get_shape()))


def row_type(stacked: SSAValue) -> TensorType[Attribute]:
    """The type of one row."""
    type_ = _tensor(stacked)
    return tensor_type(type_.element_type, type_.get_shape()[1:])


def listed(types: Sequence[Attribute]) -> str:
    """Types as messages list them."""
    return f"({', '.join(map(str, types))})"


class Branching(IRDLOperation):
    """What a branch takes and gives: one of two bodies gets all that is captured."""

    predicate = operand_def(TensorType)
    captured = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)

    def branch(self, then: Body, otherwise: Body, *arrays: Array) -> tuple[Array, ...]:
        """The meaning, given what the bodies do."""
        predicate, *captured = arrays
        return tuple((then if predicate else otherwise)(captured))

    def check_predicate(self) -> None:
        if self.predicate.type != TRUTH:
            raise VerifyException(
                f"the predicate of {self.name} is {TRUTH}, not {self.predicate.type}"
            )

    @property
    def argument_types(self) -> list[Attribute]:
        """What a body takes."""
        return [value.type for value in self.captured]

    @property
    def yielded_types(self) -> list[Attribute]:
        """What a body gives."""
        return list(self.outputs.types)

    @staticmethod
    def input_names(captured: int) -> list[str]:
        """The names of the inputs of a graph that is a body."""
        return [f"captured{number}" for number in range(captured)]

    @staticmethod
    def output_names(count: int) -> list[str]:
        """The names of its outputs."""
        return [f"output{number}" for number in range(count)]


class LoopArguments(TypedDict):
    """What the constructors of all loops take by name."""

    trips: int
    reverse: bool
    go: SSAValue | None
    limit: SSAValue | None
    carried: Sequence[SSAValue]
    scanned: Sequence[SSAValue]
    captured: Sequence[SSAValue]


def loop_properties(trips: int, reverse: bool) -> dict[str, Attribute | None]:
    """The properties of all loops."""
    return {"trips": IntegerAttr(trips, i64), "reverse": UnitAttr() if reverse else None}


def loop_results(
    carried: Sequence[SSAValue | Operation], trips: int, rows: Sequence[Attribute]
) -> list[list[Attribute]]:
    """The types of what a loop gives: finals, and the rows of all turns."""
    finals = [SSAValue.get(value).type for value in carried]
    return [finals, [stacked_type(trips, row) for row in rows]]


class Looping(IRDLOperation):
    """
    What a loop takes and gives: its body runs for the turns 0 to `trips`.

    If `reverse`, the last turn comes first. The body takes the number of the turn, the carried
    values, row `turn` of each of `scanned`, and `captured` as they are. It yields the carried
    values of the next turn and rows of the stacked results. With `limit` there are no more turns
    than that; with `go`, whose next value the body yields first, none from the turn on before
    which it is false: rows of these turns are zero.
    """

    trips = prop_def(IntegerAttr)
    reverse = opt_prop_def(UnitAttr)
    go = opt_operand_def(TensorType)
    limit = opt_operand_def(TensorType)
    carried = var_operand_def(TensorType)
    scanned = var_operand_def(TensorType)
    captured = var_operand_def(TensorType)
    finals = var_result_def(TensorType)
    stacked = var_result_def(TensorType)
    irdl_options = (
        AttrSizedOperandSegments(as_property=True),
        AttrSizedResultSegments(as_property=True),
    )

    @property
    def turns(self) -> int:
        """The number of turns; the largest that there may be, if the loop can end before."""
        return self.trips.value.data

    @property
    def ends_early(self) -> bool:
        """Whether something at run time decides how many turns there are."""
        return self.go is not None or self.limit is not None

    @property
    def argument_types(self) -> list[Attribute]:
        """What the body takes."""
        rows = map(row_type, self.scanned)
        return [NUMBER, *self.carried.types, *rows, *self.captured.types]

    @property
    def yielded_types(self) -> list[Attribute]:
        """What the body gives."""
        steering = [] if self.go is None else [TRUTH]
        return [*steering, *self.carried.types, *map(row_type, self.stacked)]

    @staticmethod
    def input_names(carried: int, scanned: int, captured: int) -> list[str]:
        """The names of the inputs of a graph that is a body."""
        counts = zip(GROUPS, (carried, scanned, captured), strict=True)
        named = [f"{group}{number}" for group, count in counts for number in range(count)]
        return ["turn", *named]

    @staticmethod
    def output_names(go: bool, carried: int, rows: int) -> list[str]:
        """The names of its outputs."""
        finals = [f"carried{number}" for number in range(carried)]
        return [*(["go"] if go else []), *finals, *(f"row{number}" for number in range(rows))]

    def split(self, items: Sequence[Item]) -> tuple[list[Item], ...]:
        """What belongs to the operands, by group: go, limit, carried, scanned, captured."""
        sizes = (
            self.go is not None,
            self.limit is not None,
            *(len(getattr(self, g)) for g in GROUPS),
        )
        rest = iter(items)
        return tuple([next(rest) for _ in range(size)] for size in sizes)

    def repeat(self, body: Body, *arrays: Array) -> tuple[Array, ...]:
        """The meaning, given what the body does."""
        steering, limit, carried, scanned, captured = self.split(arrays)
        go = all(map(bool, steering))
        turns = min(self.turns, *(int(array) for array in limit)) if limit else self.turns
        stacked = [
            np.zeros(type_.get_shape(), element_types.from_ir(type_.element_type).numpy)
            for type_ in map(_tensor, self.stacked)
        ]
        turn = 0
        while go and turn < turns:
            at = self.turns - 1 - turn if self.reverse else turn
            rows = [array[at] for array in scanned]
            given = list(body([np.array(at), *carried, *rows, *captured]))
            go = bool(given.pop(0)) if steering else True
            carried, made = given[: len(carried)], given[len(carried) :]
            for array, row in zip(stacked, made, strict=True):
                array[at] = row
            turn += 1
        return (*carried, *stacked)

    def check_turns(self) -> None:
        """VerifyException unless what steers the loop and the numbers of rows fit."""
        trips = self.turns
        if trips < 0:
            raise VerifyException(f"a loop has at least 0 trips, not {trips}")
        for value, type_ in ((self.go, TRUTH), (self.limit, NUMBER)):
            if value is not None and value.type != type_:
                raise VerifyException(f"a loop is steered by {type_}, not {value.type}")
        if trips == UNBOUNDED and (self.scanned or self.stacked or not self.ends_early):
            raise VerifyException("a loop that has rows, or no end, needs a number of trips")
        if self.reverse and self.ends_early:
            raise VerifyException("a loop that something ends early begins with turn 0")
        for value in (*self.scanned, *self.stacked):
            if _tensor(value).get_shape()[:1] != (trips,):
                raise VerifyException(f"{value.type} has no row for each of {trips} turns")
        if list(self.finals.types) != list(self.carried.types):
            raise VerifyException("the carried values have one type before and after")
