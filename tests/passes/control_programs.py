"""Random programs with loops and branches as plain data, built rolled, or unrolled and selected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from hypothesis import strategies as st
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import f64
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.program import ConstantOp, DataAttr, YieldOp
from popgraph.dialects.program.control_signatures import NUMBER, row_type
from popgraph.support.arrays import Array

Build: TypeAlias = Callable[..., Sequence[Operand]]
SHAPE = (2, 2)
"""Shape of all tensors in drawn programs."""


def constant(array: Array | float | int | bool) -> SSAValue:
    return ConstantOp(DataAttr.of(np.asarray(array))).result


def body(types: Sequence[object], build: Build) -> Region:
    """A region with the operations that `build` emits for its arguments."""
    block = Block(arg_types=list(types))  # type: ignore[arg-type]
    with ImplicitBuilder(block):
        YieldOp([SSAValue.get(value) for value in build(*block.args)])
    return Region(block)


def branch(
    predicate: Operand, captured: Sequence[Operand], then: Build, otherwise: Build
) -> Sequence[SSAValue]:
    types = [SSAValue.get(value).type for value in captured]
    with_bodies = gc.CondOp(predicate, captured, body(types, then), body(types, otherwise))
    return with_bodies.results


@dataclass(frozen=True)
class Loop:
    """A loop; its body `build(index, carried, rows, captured)` returns carried values and rows."""

    trips: int
    build: Callable[..., tuple[Sequence[Operand], Sequence[Operand]]]
    reverse: bool = False
    limit: int | None = None
    """A limit of the trip count that is an operand of the loop."""
    until: int | None = None
    """Number of the last iteration, after which the body ends the loop."""

    @property
    def turns(self) -> int:
        """The trip count."""
        found = self.trips if self.limit is None else min(self.trips, self.limit)
        return found if self.until is None else min(found, self.until + 1)

    def rolled(
        self,
        carried: Sequence[Operand] = (),
        scanned: Sequence[Operand] = (),
        captured: Sequence[Operand] = (),
    ) -> gc.LoopOp:
        kept, first = len(carried), 1 + len(carried) + len(scanned)

        def build(turn: SSAValue, *values: SSAValue) -> Sequence[Operand]:
            rows, rest = values[kept : first - 1], values[first - 1 :]
            after, stacked = self.build(turn, values[:kept], rows, rest)
            go = [] if self.until is None else [gc.CompareOp(turn, constant(self.until), "lt")]
            return [*go, *after, *stacked]

        groups = [list(map(SSAValue.get, group)) for group in (carried, scanned, captured)]
        types = [
            *(value.type for value in groups[0]),
            *map(row_type, groups[1]),
            *(value.type for value in groups[2]),
        ]
        return gc.LoopOp(
            self.trips,
            body([NUMBER, *types], build),
            carried=carried,
            scanned=scanned,
            captured=captured,
            go=None if self.until is None else constant(True),
            limit=None if self.limit is None else constant(self.limit),
            reverse=self.reverse,
        )

    def unrolled(
        self,
        carried: Sequence[Operand] = (),
        scanned: Sequence[Operand] = (),
        captured: Sequence[Operand] = (),
    ) -> Sequence[Operand]:
        """The same results without a loop; all of them have `SHAPE`."""
        stacked: dict[int, Sequence[Operand]] = {}
        for turn in range(self.turns):
            at = self.trips - 1 - turn if self.reverse else turn
            rows = [row(value, at) for value in scanned]
            carried, stacked[at] = self.build(constant(at), carried, rows, captured)
        count = len(next(iter(stacked.values()))) if stacked else None
        # Without an iteration, the number of rows that the body yields is unknown.
        if count is None:
            return carried
        nothing = constant(np.zeros(SHAPE))
        joined = [
            gc.ConcatOp(
                [
                    gc.ReshapeOp(
                        stacked[at][place] if at in stacked else nothing, shape=(1, *SHAPE)
                    )
                    for at in range(self.trips)
                ],
                axis=0,
            )
            for place in range(count)
        ]
        return [*carried, *joined]


def row(value: Operand, at: int) -> Operand:
    """A row of stacked values."""
    _, *shape = shape_of(value)
    starts, sizes = [at] + [0] * len(shape), [1, *shape]
    taken = gc.SliceOp(value, starts=starts, sizes=sizes, steps=[1] * len(sizes))
    return gc.ReshapeOp(taken, shape=shape)


# Drawn programs

UNARY: dict[str, Callable[[Operand], Operand]] = {
    "tanh": gc.TanhOp,
    "half": lambda x: gc.MulOp(x, constant(0.5)),
    "transpose": lambda x: gc.TransposeOp(x, perm=(1, 0)),
    "softmax": lambda x: gc.SoftmaxOp(x, axis=1),
    "gelu": lambda x: gc.GeluOp(x, approximate=True),
    "column sums": lambda x: gc.BroadcastOp(
        gc.ReduceSumOp(gc.TanhOp(x), axes=[0], keepdims=True), shape=SHAPE
    ),
    "flip": lambda x: gc.SliceOp(x, starts=(1, 0), sizes=SHAPE, steps=(-1, 1)),
    "gather": lambda x: gc.GatherOp(x, constant(np.array([1, 1])), axis=0),
    "detach": gc.DetachOp,
    "nothing": lambda x: constant(np.full(SHAPE, 0.75)),
}
BINARY: dict[str, Callable[[Operand, Operand], Operand]] = {
    "add": gc.AddOp,
    "mul": gc.MulOp,
    "matmul": lambda x, y: gc.MatMulOp(gc.TanhOp(x), y),
    "sub": gc.SubOp,
    "bias": lambda x, y: gc.AddOp(x, gc.ReduceSumOp(y, axes=[0], keepdims=False)),
}


@dataclass(frozen=True)
class Step:
    """A new value; operands are earlier values, by number modulo their count."""

    kind: str
    first: int
    second: int
    inner: Nested | None = None


@dataclass(frozen=True)
class Body:
    """Steps, and the numbers of the results."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Nested:
    """A loop or a branch; its operands are values by number."""

    kind: str
    body: Body
    otherwise: Body
    carried: tuple[int, ...] = ()
    scanned: tuple[int, ...] = ()
    captured: tuple[int, ...] = ()
    trips: int = 2
    reverse: bool = False
    limit: int | None = None
    until: int | None = None
    rows: int = 0
    bounded: bool = True
    """Whether carried values are kept small."""
    silent: int = 7
    """Number of the result that is detached from the gradient."""


def apply(
    part: Body, turn: SSAValue | None, values: Sequence[Operand], rolled: bool, count: int
) -> Sequence[Operand]:
    """`count` results of a body for its arguments."""
    pool = list(values) or [constant(np.full(SHAPE, 0.5))]
    for step in part.steps:
        pool.append(_step(step, turn, pool, rolled))
    return [pool[part.results[at % len(part.results)] % len(pool)] for at in range(count)]


def _step(step: Step, turn: SSAValue | None, pool: Sequence[Operand], rolled: bool) -> Operand:
    first, second = pool[step.first % len(pool)], pool[step.second % len(pool)]
    if step.inner is not None:
        return _nested(step.inner, pool, rolled)
    if step.kind == "turn":
        number = constant(2.0) if turn is None else gc.CastOp(turn, to=f64)
        return gc.MulOp(first, gc.AddOp(number, constant(1.0)))
    if step.kind in UNARY:
        return UNARY[step.kind](first)
    return BINARY[step.kind](first, second)


def _nested(part: Nested, pool: Sequence[Operand], rolled: bool) -> Operand:
    """The mean of all results, so that each of them has a gradient."""

    def pick(numbers: Sequence[int]) -> list[Operand]:
        return [pool[number % len(pool)] for number in numbers]

    if part.kind == "cond":
        return _branch(part, pick(part.captured), rolled)
    carried, captured = pick(part.carried), pick(part.captured)
    scanned = [_spread(one, part.trips) for one in pick(part.scanned)] if part.trips else []
    rows = part.rows if part.trips else 0

    def build(
        turn: SSAValue, now: Sequence[Operand], row: Sequence[Operand], rest: Sequence[Operand]
    ) -> tuple[Sequence[Operand], Sequence[Operand]]:
        found = apply(part.body, turn, [*now, *row, *rest], rolled, len(now) + rows)
        after = found[: len(now)]
        return [gc.TanhOp(one) for one in after] if part.bounded else after, found[len(now) :]

    limit, until = (None, None) if part.reverse else (part.limit, part.until)
    loop = Loop(part.trips, build, part.reverse, limit, until)
    if rolled:
        results: Sequence[Operand] = loop.rolled(carried, scanned, captured).results
    else:
        results = loop.unrolled(carried, scanned, captured)
    total: Operand = constant(np.full(SHAPE, 0.25))
    for number, result in enumerate(results):
        if len(shape_of(result)) == 3:
            weights = constant(np.arange(1.0, 1 + part.trips).reshape(-1, 1, 1))
            result = gc.ReduceSumOp(gc.MulOp(result, weights), axes=[0], keepdims=False)
        if number != part.silent:
            total = gc.AddOp(total, result)
    return gc.TanhOp(total)


def _spread(value: Operand, turns: int) -> Operand:
    """Rows that differ in every iteration."""
    factors = constant(np.arange(1.0, 1 + turns).reshape(-1, 1, 1))
    return gc.MulOp(gc.ReshapeOp(value, shape=(1, *SHAPE)), factors)


def _branch(part: Nested, captured: Sequence[Operand], rolled: bool) -> Operand:
    captured = captured or [constant(np.full(SHAPE, 0.5))]
    mean = gc.ReduceSumOp(captured[0], axes=[0, 1], keepdims=False)
    predicate = gc.CompareOp(mean, constant(0.1), "lt")

    def then(*values: Operand) -> Sequence[Operand]:
        return apply(part.body, None, values, rolled, 2)

    def otherwise(*values: Operand) -> Sequence[Operand]:
        return apply(part.otherwise, None, values, rolled, 2)

    if rolled:
        first, second = branch(predicate, captured, then, otherwise)
    else:
        chosen = zip(then(*captured), otherwise(*captured), strict=True)
        first, second = (gc.WhereOp(predicate, yes, no).result for yes, no in chosen)
    return first if part.trips % 2 else gc.AddOp(first, second)


# Drawn by hand: Hypothesis would print all nested calls of `st.builds`.

NUMBERS = st.integers(0, 7)


def _numbers(draw: st.DrawFn, least: int, most: int) -> tuple[int, ...]:
    return tuple(draw(st.lists(NUMBERS, min_size=least, max_size=most)))


def _draw_body(draw: st.DrawFn, depth: int) -> Body:
    count = draw(st.integers(0, 4))
    return Body(tuple(_draw_step(draw, depth) for _ in range(count)), _numbers(draw, 1, 4))


def _draw_step(draw: st.DrawFn, depth: int) -> Step:
    if depth and draw(st.booleans()):
        return Step("nested", 0, 0, _draw_nested(draw, depth - 1))
    kind = draw(st.sampled_from(["turn", *UNARY, *BINARY, *["matmul"] * 8]))
    return Step(kind, draw(NUMBERS), draw(NUMBERS))


def _draw_nested(draw: st.DrawFn, depth: int) -> Nested:
    return Nested(
        kind=draw(st.sampled_from(["loop", "loop", "loop", "cond"])),
        body=_draw_body(draw, depth),
        otherwise=_draw_body(draw, depth),
        carried=_numbers(draw, 0, 2),
        scanned=_numbers(draw, 0, 2),
        captured=_numbers(draw, 0, 3),
        trips=draw(st.integers(0, 3)),
        reverse=draw(st.booleans()),
        limit=draw(st.none() | st.integers(0, 4)),
        until=draw(st.none() | st.integers(0, 3)),
        rows=draw(st.integers(0, 2)),
        bounded=draw(st.booleans()),
        silent=draw(NUMBERS),
    )


@dataclass(frozen=True)
class Drawn:
    """Steps on three variables, then a loop or a branch."""

    before: Body
    control: Nested

    def build(self, variables: Sequence[SSAValue], rolled: bool) -> Operand:
        """A weighted sum of the result."""
        values = [*variables, *apply(self.before, None, variables, rolled, 1)]
        result = _nested(self.control, values, rolled)
        weights = constant(np.array([[1.0, -2.0], [0.5, 3.0]]))
        return gc.ReduceSumOp(gc.MulOp(result, weights), axes=[0, 1], keepdims=False)


@st.composite
def drawn_programs(draw: st.DrawFn, depth: int = 2) -> Drawn:
    return Drawn(_draw_body(draw, 0), _draw_nested(draw, depth))
