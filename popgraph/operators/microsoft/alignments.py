"""Operators of onnxruntime that align two sequences: a path of least cost, the end of a suffix."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.operators.microsoft.body import Body, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.record import HOSTED, MICROSOFT, without_gradient

DIAGONAL, UP, LEFT = 0, 1, 2
"""Where the path to an element of a matrix comes from."""


@defines("DynamicTimeWarping", "input")
def dynamic_time_warping(call: Call) -> Value:
    """The path of least cost from the first element of a matrix to the last: [2, length]."""
    rank = call.rank("input")
    if rank not in (2, 3) or (rank == 3 and call.size("input", 0) != 1):
        raise call.unfit(f"costs of {rank} dimensions", "[rows, columns] are taken, or [1, ...]")
    costs = call["input"].Squeeze([0]) if rank == 3 else call["input"]
    rows, columns = costs.length(0), costs.length(1)
    ways = _ways(costs).reshaped(-1)

    def turn(_: Body, row: Value, column: Value, _turn: Value) -> Sequence[Value]:
        inside = (row >= 0) & (column >= 0)
        way, step = ways.Gather((column * rows + row).Max(0)), inside.typed("i64")
        up, left = (way.same(one).Not().typed("i64") for one in (LEFT, UP))
        return row - up * step, column - left * step, row, column, inside

    turns = call.body.counted(rows + columns - 1)
    *_, row, column, inside = call.body.scanned([rows - 1, columns - 1], turns, turn, True)
    path = row.Unsqueeze([0]).Concat(column.Unsqueeze([0]), axis=0)
    return path.Compress(inside, axis=1).typed("i32")


def _ways(costs: Value) -> Value:
    """Where the path to each element comes from, by columns: [columns, rows]."""
    body = costs.body
    none = costs.number(float("inf"))
    start = (costs.part(0, 1, 1).Squeeze([1]) * 0).number(0.0).reshaped(1)

    def down(_: Body, up: Value, diagonal: Value, left: Value, cost: Value) -> Sequence[Value]:
        is_diagonal = (diagonal < up) & (diagonal < left)
        is_up = (up < diagonal) & (up < left)
        least = is_diagonal.Where(diagonal, is_up.Where(up, left)) + cost
        way = is_diagonal.Where(
            body.constant(DIAGONAL), is_up.Where(body.constant(UP), body.constant(LEFT))
        )
        return least, least, way

    def across(inner: Body, before: Value, corner: Value, column: Value) -> Sequence[Value]:
        diagonals = corner.Concat(before.part(0, -1, 0), axis=0)
        _, made, way = inner.scanned([none], [diagonals, before, column], down)
        return made, none.reshaped(1), way

    first = none.Expand(costs.Shape(start=0, end=1))
    _, _, ways = body.scanned([first, start], costs.permuted(1, 0), across)
    return ways


@defines("BifurcationDetector", "src_tokens cur_tokens prev_suffix_match_idx pred_tokens")
def bifurcation(call: Call) -> Sequence[Value]:
    """
    Tokens that were predicted as they stand in the source follow the current ones.

    With them comes the first that differs; the other result is where the source goes on behind
    the only place at which it has the last tokens, -1 without one.
    """
    source, tokens = call["src_tokens"], call["cur_tokens"]
    if call.has("pred_tokens"):
        tokens = tokens.Concat(_accepted(call), axis=0)
    least, most = call.integer("min_ngram_size", 1), call.integer("max_ngram_size", 3)
    if not 0 < least <= most:
        raise call.unfit(f"min_ngram_size = {least}, max_ngram_size = {most}")
    count = source.length(0)
    ends, lengths = call.body.counted(count) + 1, _matches(source, tokens, most)
    found, goes_on = call.body.constant(-1), None
    for size in range(least, most + 1):
        match = lengths >= size
        matches = match.typed("i64").ReduceSum(keepdims=0)
        first = match.Where(ends, count + 1).ReduceMin(keepdims=0)
        known = (matches > 0) if goes_on is None else goes_on & (matches > 0)
        found = known.Where((matches > 1).Where(call.body.constant(-1), first), found)
        goes_on = known & (first < count)
    return tokens, found.Reshape(call["prev_suffix_match_idx"].Shape())


def _accepted(call: Call) -> Value:
    """The predicted tokens up to the first that the source does not have."""
    source, predicted = call["src_tokens"], call["pred_tokens"]
    begin, at = call["prev_suffix_match_idx"].reshaped(), call.body.counted(predicted.length(0))
    place = at + begin
    count = source.length(0)
    differs = source.Gather(place.Min(count - 1)).same(predicted).Not() | (place >= count)
    return predicted.Compress(at <= differs.typed("i32").ArgMax(axis=0, keepdims=0), axis=0)


def _matches(source: Value, tokens: Value, most: int) -> Value:
    """How many tokens before each end in the source are the last tokens, at most so many."""
    body, length = source.body, tokens.length(0)
    own = body.counted(source.length(0)).Unsqueeze([1]) - body.counted(most)
    last = length - 1 - body.counted(most)
    alike = source.Gather(own.Max(0)).same(tokens.Gather(last.Max(0))) & (own >= 0) & (last >= 0)
    still = alike.Not().typed("i64").CumSum(1).same(0)
    return still.typed("i64").ReduceSum([1], keepdims=0)


without_gradient("BifurcationDetector", "it takes integers", domain=MICROSOFT)

without_gradient("DynamicTimeWarping", HOSTED, domain=MICROSOFT)
