"""Lowers PopART's PackedDataBlock: a graph goes over sequences that lie packed in one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.operators.arithmetic import whole_numbers
from popgraph.operators.bodies import check_outputs, given_tensor
from popgraph.operators.dynamic_slices import rows_put
from popgraph.operators.indexing import never_negative, whole
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers
from popgraph.operators.repetition import Repetition, Steering, Turn
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod


@lowers("PackedDataBlock", domain=GRAPHCORE)
def packed_data_block(node: Node) -> Lowered:
    """
    The graph runs for one batch of sequences after the other, each made as long as the longest.

    Inputs are, three by three, packed data, where each sequence begins in it and how long it is;
    then where each result begins and how long it is. Rows that no result reaches are 0.
    """
    graph, batch = node.graph("callback"), node.integer("callbackBatchSize")
    longest = node.integers("maxSequenceLengths")
    check_outputs(node, graph, len(graph.yielded))
    _check(node, len(graph.block.args), longest, batch)
    turns = prod(shape_of(node[1])) // batch
    rows = [
        SSAValue.get(reshaped(padded, (turns, batch, *shape_of(padded)[1:])))
        for padded in (
            _padded(node, 3 * at, most, turns * batch) for at, most in enumerate(longest)
        )
    ]

    def body(number: SSAValue, carried: Sequence[SSAValue], rows: Sequence[SSAValue]) -> Turn:
        made = node.lowering.place(graph, rows)
        return Turn(None, [], [given_tensor(node, graph, made, 0)])

    name = node.op.output_names[0]
    _, (made,) = Repetition(node, body, [], rows, [], [name]).results(Steering(turns))
    return _packed(node, made, turns * batch)


def _check(node: Node, arguments: int, longest: Sequence[int], batch: int) -> None:
    counts = {prod(shape_of(node[at])) for at in range(len(node)) if at % 3 or at >= len(node) - 2}
    if len(node) != 3 * len(longest) + 2 or arguments != len(longest) or len(counts) != 1:
        raise TypeMismatchError(
            f"PackedDataBlock with {len(node)} inputs, {len(longest)} longest lengths and a graph "
            f"of {arguments} inputs",
            hint="to each input of the graph belong data, offsets and lengths; then come the "
            "offsets and lengths of the results, one for each sequence",
        )
    if batch < 1 or counts.pop() < batch:
        raise TypeMismatchError(
            f"callbackBatchSize is {batch}, which is not among the numbers of sequences",
            hint="it is at least 1, and there are as many sequences or more",
        )


def _padded(node: Node, at: int, most: int, count: int) -> SSAValue:
    """The first sequences of an input, so many of them, with zeros behind the end of each."""
    data = node[at]
    begins, lengths = (_column(node, index, count) for index in (at + 1, at + 2))
    own = gc.IotaOp(shape=(count, most), axis=1, dtype=I64)
    inside = gc.CompareOp(own, lengths, predicate="lt")
    safe = gc.WhereOp(inside, gc.AddOp(own, begins), whole(node, 0))
    taken = gc.GatherOp(data, never_negative(safe), axis=0)
    condition = reshaped(inside.result, (count, most, *(1 for _ in shape_of(data)[1:])))
    return gc.WhereOp(condition, taken, node.scalar(0, dtype_of(data))).result


def _column(node: Node, index: int, count: int) -> Operand:
    """The first numbers of an input, one to a row."""
    numbers = reshaped(whole_numbers(node, index), (prod(shape_of(node[index])),))
    return reshaped(SSAValue.get(sliced(SSAValue.get(numbers), {0: (0, count, 1)})), (count, 1))


def _packed(node: Node, made: SSAValue, count: int) -> Operand:
    """The results of all sequences, each as far as it is to reach, in the rows of one tensor."""
    most, *rest = shape_of(made)[2:]
    places, lengths = (SSAValue.get(_column(node, len(node) - at, count)) for at in (2, 1))
    lengths = gc.MinOp(lengths, whole(node, most)).result
    begins = gc.MulOp(gc.IotaOp(shape=(count, 1), axis=0, dtype=I64), whole(node, most)).result
    source = SSAValue.get(reshaped(made, (count * most, *rest)))
    zero = node.scalar(0, dtype_of(made))
    return rows_put(node, source, zero, node.integer("resultSize"), [lengths, begins, places])
