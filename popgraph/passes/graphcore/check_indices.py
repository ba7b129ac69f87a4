"""Adds outputs that report out-of-range indices at run time."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import element_types
from popgraph.dialects.graphcore import (
    AddOp,
    CastOp,
    CheckIndicesOp,
    CompareOp,
    CondOp,
    GatherGradOp,
    GatherOp,
    LoopOp,
    MaxOp,
    ReduceMaxOp,
    ReshapeOp,
    SliceOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, integer, shape_of
from popgraph.dialects.graphcore.control import Control, yield_of
from popgraph.dialects.program import (
    ConstantOp,
    DataAttr,
    GraphOp,
    ReturnOp,
    WeightStore,
    YieldOp,
    graphs_of,
)
from popgraph.dialects.program.sizes import sizes_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import CHECKED, UNREPORTED
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.errors import UnsupportedError
from popgraph.support.index_checks import NEAREST, IndexCheck
from popgraph.support.shapes import prod

WIDE = dtypes.BY_NAME["i64"]
"""Signed type that holds all indices."""

UNSIGNED = dtypes.BY_NAME["u64"]
"""Unsigned type: negative distances wrap around to large ones, so one maximum finds both ends."""

JOINED = 32
"""Number of indices reduced together: a few vectors on every machine."""


@dataclass(frozen=True)
class CheckIndices(Pass):
    """
    gather(x, check_indices(i))  ->  gather(x, unsigned(i)), with the output max(unsigned(i - low)).

    Negative indices are first counted from the start: where(i < 0, i + size, i). The caller raises
    an error if the output is out of range. Until then, one minimum keeps unsigned indices inside

    the tensor, so invalid indices read wrong elements, but never other memory. A loop carries the
    maximum over its iterations; a branch that is not taken reports no index.
    """

    name = "check-indices"
    GIVES = (CHECKED,)
    LOSES = (UNREPORTED,)
    AFTER = ("dce",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        joined = 1 if sizes_of(module) else JOINED
        for graph in graphs_of(module):
            found = _reports(graph.block, compilation.weights, joined)
            if found:
                _add_outputs(graph, found)


@dataclass(frozen=True)
class _Report:
    """A check, and the value in some block that holds its result."""

    check: IndexCheck
    value: SSAValue


def _reports(block: Block, weights: WeightStore, joined: int) -> list[_Report]:
    """Replaces the checks in a block and its bodies by values that hold their results."""
    found: list[_Report] = []
    for op in list(block.ops):
        match op:
            case CheckIndicesOp():
                found += _report(op, joined)
            case LoopOp():
                found += _of_loop(op, weights, joined)
            case CondOp():
                found += _of_cond(op, weights, joined)
    return found


def _report(op: CheckIndicesOp, joined: int) -> list[_Report]:
    found: list[_Report] = []
    if 0 not in shape_of(op.indices):  # Without indices, none is out of range.
        with ImplicitBuilder(Builder(InsertPoint.before(op))):
            found = [_Report(op.check(f"check of {op.place.text}"), largest(op, joined))]
        _use_places(op)
    op.result.replace_all_uses_with(op.indices)
    Rewriter.erase_op(op)
    return found


def _of_loop(op: LoopOp, weights: WeightStore, joined: int) -> list[_Report]:
    """The maximum over all iterations; 0, which is in range, if none runs."""
    found = _reports(op.block, weights, joined)
    if not found:
        return []
    _check_bounds(found, may_not_run=op.ends_early or not op.turns)
    first = [_nothing(op, report, weights) for report in found]
    start, end = len(op.carried), yield_of(op.block)
    for number, report in enumerate(found):
        argument = op.block.insert_arg(report.value.type, 1 + start + number)
        with ImplicitBuilder(Builder(InsertPoint.before(end))):
            found[number] = _Report(report.check, MaxOp(argument, report.value).result)
    place = int(op.go is not None) + start
    values = list(end.values)
    _yield_instead(end, [*values[:place], *(one.value for one in found), *values[place:]])
    made = LoopOp(
        op.turns,
        op.detach_region(op.body),
        carried=[*op.carried, *first],
        scanned=op.scanned,
        captured=op.captured,
        go=op.go,
        limit=op.limit,
        reverse=op.reverse is not None,
    )
    _replace(op, made, [*made.finals[:start], *made.stacked])
    results = made.finals[start:]
    return [_Report(one.check, value) for one, value in zip(found, results, strict=True)]


def _of_cond(op: CondOp, weights: WeightStore, joined: int) -> list[_Report]:
    """The results of the branch that is taken; checks of the other branch yield 0."""
    found = [_reports(block, weights, joined) for block in op.bodies()]
    reports = [report for one in found for report in one]
    if not reports:
        return []
    _check_bounds(reports, may_not_run=True)
    for block, own in zip(op.bodies(), found, strict=True):
        end = yield_of(block)
        values = [
            report.value if report in own else _nothing(end, report, weights) for report in reports
        ]
        _yield_instead(end, [*end.values, *values])
    count = len(op.outputs)
    then, otherwise = map(op.detach_region, (op.then_body, op.else_body))
    made = CondOp(op.predicate, op.captured, then, otherwise)
    _replace(op, made, made.outputs[:count])
    results = made.outputs[count:]
    return [_Report(one.check, value) for one, value in zip(reports, results, strict=True)]


def _check_bounds(found: Iterable[_Report], *, may_not_run: bool) -> None:
    """Rejects checks of empty axes in a body that may not run: 0 would not pass them either."""
    for check in (report.check for report in found):
        if may_not_run and any(last < low for low, last in zip(check.low, check.last, strict=True)):
            raise UnsupportedError(
                f"an {check.what} into an empty axis cannot be checked in a body that may not run",
                check.place,
                f"compile with indices={NEAREST!r}",
            )


def _nothing(op: Operation, report: _Report, weights: WeightStore) -> SSAValue:
    """The result of a check without indices, 0, computed before an operation."""
    zeros = np.zeros(shape_of(report.value), dtype_of(report.value).numpy)
    with ImplicitBuilder(Builder(InsertPoint.before(op))):
        return ConstantOp(weights.attribute(zeros)).result


def _yield_instead(end: YieldOp, values: Sequence[SSAValue]) -> None:
    Rewriter.replace_op(end, YieldOp(values), [])


def _replace(op: Control, made: Control, results: Sequence[SSAValue]) -> None:
    made.location = op.location
    Rewriter.insert_op(made, InsertPoint.before(op))
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new)
    Rewriter.erase_op(op)


def _add_outputs(graph: GraphOp, found: Iterable[_Report]) -> None:
    before, outputs = graph.return_op, graph.outputs
    checks: list[IndexCheck] = [*before.index_checks]
    for report in found:
        check = replace(report.check, output=_free_name(report.check.output, outputs.keys()))
        outputs[check.output] = report.value
        checks.append(check)
    Rewriter.erase_op(before)
    graph.block.add_op(ReturnOp(list(outputs.values()), list(outputs), checks))


def _use_places(op: CheckIndicesOp) -> None:
    """Gives lookups the indices as unsigned positions from the start."""
    lookups = [use for use in op.result.uses if isinstance(use.operation, GatherOp | GatherGradOp)]
    # Ignored indices are legal although out of range, and columns have different sizes.
    if not lookups or op.ignored is not None or len(op.low) > 1:
        return
    with ImplicitBuilder(Builder(InsertPoint.before(op))):
        places = _places(op.indices, -op.low.data[0])
    for use in lookups:
        use.operation.operands[use.index] = places


def _places(indices: Operand, size: int) -> SSAValue:
    """Indices as unsigned positions from the start; invalid ones are at least `size`."""
    if size:
        wide = _cast(indices, WIDE)
        negative = CompareOp(wide, _literal(0, WIDE), "lt")
        indices = WhereOp(negative, AddOp(wide, _literal(size, WIDE)), wide)
    return _cast(indices, UNSIGNED)


def _cast(value: Operand, dtype: DType) -> SSAValue:
    """The value in an element type, cast only if needed."""
    if dtype_of(value) == dtype:
        return SSAValue.get(value)
    return CastOp(value, to=element_types.to_ir(dtype)).result


def _free_name(name: str, taken: Container[object]) -> str:
    """An output name that is not taken."""
    while name in taken:
        name += "'"
    return name


def largest(op: CheckIndicesOp, joined: int = JOINED) -> SSAValue:
    """
    The maximum of unsigned(index - low), for each bound.

    `joined` indices are reduced together to fill vectors. It is 1 if the number of rows is a size
    of the call, since the structure of such a program must not depend on the size.
    """
    rank = len(shape_of(op.indices))
    if len(op.low) > 1 and rank > 1:
        return _largest_of_columns(op, joined)
    distances = _distances(op, op.indices)
    if len(op.low) > 1 or not rank:
        return distances
    return ReduceMaxOp(distances, axes=range(rank), keepdims=False).result


def _largest_of_columns(op: CheckIndicesOp, joined: int) -> SSAValue:
    """
    The maximum of each column of the last axis.

    Several rows are reduced as one, since a short row does not fill a vector. The rest follows.
    """
    *outer, columns = shape_of(op.indices)
    rows, joined = prod(outer), max(1, joined // columns)
    flat = op.indices if len(outer) == 1 else ReshapeOp(op.indices, shape=(rows, columns)).result
    many = rows - rows % joined
    if joined == 1 or many < 2 * joined:
        return _largest_row(_distances(op, flat))
    wide = ReshapeOp(_some_rows(flat, 0, many), shape=(many // joined, joined * columns))
    best = _largest_row(_distances(op, wide, joined))
    largest = _largest_row(ReshapeOp(best, shape=(joined, columns)))
    if many == rows:
        return largest
    left = _distances(op, _some_rows(flat, many, rows - many))
    return MaxOp(largest, _largest_row(left)).result


def _distances(op: CheckIndicesOp, indices: Operand, joined: int = 1) -> SSAValue:
    """unsigned(index - low), for `joined` rows of indices joined into one."""
    exact = op.ignored is None and dtype_of(indices).name == "i32"
    if not exact:
        indices = _cast(indices, WIDE)
    if op.ignored is not None:
        counts = CompareOp(indices, _literal(integer(op.ignored), WIDE), "ne")
        indices = WhereOp(counts, indices, _literal(op.low.data[0], WIDE))
    unsigned = dtypes.BY_NAME["u32"] if exact else UNSIGNED
    distances = _cast(indices, unsigned)
    steps = [-low for low in op.low.data] * joined
    if not any(steps):
        return distances
    by = _literal(steps[0] if len(steps) == 1 else steps, unsigned)
    return AddOp(distances, by).result


def _largest_row(places: Operand) -> SSAValue:
    return ReduceMaxOp(places, axes=[0], keepdims=False).result


def _some_rows(places: Operand, start: int, count: int) -> Operand:
    rows, columns = shape_of(places)
    if count == rows:
        return places
    return SliceOp(places, starts=(start, 0), sizes=(count, columns), steps=(1, 1))


def _literal(numbers: int | list[int], dtype: DType) -> ConstantOp:
    """Integers in the given type; they wrap around modulo its size."""
    return ConstantOp(DataAttr.of(np.asarray(np.array(numbers, np.int64).astype(dtype.numpy))))
