"""Control flow: signature and meaning of branches and loops, for any kind of body."""

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
"""Maps the arguments of a body to its results."""

Item = TypeVar("Item")

UNBOUNDED = 2**63 - 1
"""The trip count of a loop that only a condition or a run-time limit ends."""

TRUTH = tensor_type(i1, ())
"""The type of conditions."""

NUMBER = tensor_type(i64, ())
"""The type of iteration numbers and limits."""

GROUPS = ("carried", "scanned", "captured")
"""Groups of loop operands that the body receives; `go` and `limit` only steer the loop."""


def _tensor(value: SSAValue) -> TensorType[Attribute]:
    assert isinstance(value.type, TensorType)
    return value.type


def stacked_type(trips: int, row: Attribute) -> TensorType[Attribute]:
    """The type of the stacked rows of all iterations."""
    assert isinstance(row, TensorType)
    return tensor_type(row.element_type, (trips, *row.get_shape()))


def row_type(stacked: SSAValue) -> TensorType[Attribute]:
    """The type of one row."""
    type_ = _tensor(stacked)
    return tensor_type(type_.element_type, type_.get_shape()[1:])


def listed(types: Sequence[Attribute]) -> str:
    """Formats types for messages."""
    return f"({', '.join(map(str, types))})"


class Branching(IRDLOperation):
    """The interface of a branch: one of two bodies receives all captured values."""

    predicate = operand_def(TensorType)
    captured = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)

    def branch(self, then: Body, otherwise: Body, *arrays: Array) -> tuple[Array, ...]:
        """The meaning of the branch, given the meanings of its bodies."""
        predicate, *captured = arrays
        return tuple((then if predicate else otherwise)(captured))

    def check_predicate(self) -> None:
        if self.predicate.type != TRUTH:
            raise VerifyException(
                f"the predicate of {self.name} is {TRUTH}, not {self.predicate.type}"
            )

    @property
    def argument_types(self) -> list[Attribute]:
        """The types of the arguments of a body."""
        return [value.type for value in self.captured]

    @property
    def yielded_types(self) -> list[Attribute]:
        """The types of the results of a body."""
        return list(self.outputs.types)

    @staticmethod
    def input_names(captured: int) -> list[str]:
        """The names of the inputs of a graph that is a body."""
        return [f"captured{number}" for number in range(captured)]

    @staticmethod
    def output_names(count: int) -> list[str]:
        """The names of the outputs of a graph that is a body."""
        return [f"output{number}" for number in range(count)]


class LoopArguments(TypedDict):
    """Keyword arguments that the constructors of all loops share."""

    trips: int
    reverse: bool
    go: SSAValue | None
    limit: SSAValue | None
    carried: Sequence[SSAValue]
    scanned: Sequence[SSAValue]
    captured: Sequence[SSAValue]


def loop_properties(trips: int, reverse: bool) -> dict[str, Attribute | None]:
    """The properties that all loops share."""
    return {"trips": IntegerAttr(trips, i64), "reverse": UnitAttr() if reverse else None}


def loop_results(
    carried: Sequence[SSAValue | Operation], trips: int, rows: Sequence[Attribute]
) -> list[list[Attribute]]:
    """The result types of a loop: final carried values, then the stacked rows of all iterations."""
    finals = [SSAValue.get(value).type for value in carried]
    return [finals, [stacked_type(trips, row) for row in rows]]


class Looping(IRDLOperation):
    """
    The interface of a loop: its body runs for iterations 0 to `trips - 1`.

    `reverse` starts with the last iteration. The body takes the iteration number i, the
    carried values, row i of each scanned tensor, and the captured values. It yields the carried
    values of the next iteration and one row for each stacked result. `limit` bounds the number of
    iterations. With `go`, the body first yields the next condition: the loop ends before the
    first iteration whose condition is false. Rows of iterations that do not run are zero.
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
        """The trip count; an upper bound if the loop can end early."""
        return self.trips.value.data

    @property
    def ends_early(self) -> bool:
        """Whether a run-time value decides the number of iterations."""
        return self.go is not None or self.limit is not None

    @property
    def argument_types(self) -> list[Attribute]:
        """The types of the arguments of the body."""
        rows = map(row_type, self.scanned)
        return [NUMBER, *self.carried.types, *rows, *self.captured.types]

    @property
    def yielded_types(self) -> list[Attribute]:
        """The types of the results of the body."""
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
        """The names of the outputs of a graph that is a body."""
        finals = [f"carried{number}" for number in range(carried)]
        return [*(["go"] if go else []), *finals, *(f"row{number}" for number in range(rows))]

    def split(self, items: Sequence[Item]) -> tuple[list[Item], ...]:
        """Splits one item per operand into the groups go, limit, carried, scanned, captured."""
        sizes = (
            self.go is not None,
            self.limit is not None,
            *(len(getattr(self, g)) for g in GROUPS),
        )
        rest = iter(items)
        return tuple([next(rest) for _ in range(size)] for size in sizes)

    def repeat(self, body: Body, *arrays: Array) -> tuple[Array, ...]:
        """The meaning of the loop, given the meaning of its body."""
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

    def check_loop(self) -> None:
        """Raises VerifyException unless steering types, row counts and carried types fit."""
        trips = self.turns
        if trips < 0:
            raise VerifyException(f"a loop has at least 0 trips, not {trips}")
        for value, type_ in ((self.go, TRUTH), (self.limit, NUMBER)):
            if value is not None and value.type != type_:
                raise VerifyException(f"a loop is steered by {type_}, not {value.type}")
        # Stacked rows have the trip count as their first dimension: memory must be bounded.
        if trips == UNBOUNDED and (self.scanned or self.stacked or not self.ends_early):
            raise VerifyException(
                "a loop with rows, or without a condition or limit, needs a trip count"
            )
        # Reverse starts with the last iteration, which only the run of such a loop determines.
        if self.reverse and self.ends_early:
            raise VerifyException("a loop that can end early cannot run in reverse")
        for value in (*self.scanned, *self.stacked):
            if _tensor(value).get_shape()[:1] != (trips,):
                raise VerifyException(
                    f"{value.type} must have one row for each of {trips} iterations"
                )
        if list(self.finals.types) != list(self.carried.types):
            raise VerifyException(
                f"carried values must keep their types: {listed(self.carried.types)} enter, "
                f"{listed(self.finals.types)} leave"
            )
