"""Lowers PopART's LSTM, which is ONNX's with the weights laid out otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers
from popgraph.operators.recurrent import (
    Cell,
    Layer,
    LstmCell,
    Values,
    Weights,
    cells_of,
    never_changes,
    one,
)
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape

ORDER = tuple(map("fico".index, "iofc"))
"""Where ONNX's gates stand among PopART's."""


@dataclass(frozen=True)
class PopartWeights(Weights):
    """For each gate, the matrix of the input above that of the recurrence, and one bias."""

    @property
    def features(self) -> int:
        return shape_of(self.node[0])[2]

    def inputs(self) -> SSAValue:
        return self._matrix(0, self.features)

    def recurrence(self, first: int, last: int) -> SSAValue:
        assert (first, last) == (0, LstmCell.GATES), "the gates are asked for together"
        return self._matrix(self.features, self.features + self.hidden)

    def whole_bias(self) -> SSAValue | None:
        bias = self.node.optional(2)
        if bias is None:
            return None
        return gc.ReshapeOp(_in_order(bias), shape=(LstmCell.GATES * self.hidden,)).result

    def peepholes(self) -> Values:
        return []

    def _matrix(self, first: int, last: int) -> SSAValue:
        """Rows of all gates, these side by side."""
        shape = last - first, LstmCell.GATES * self.hidden
        known = never_changes(self.node, self.node[1])
        if known is not None:
            rows = known[list(ORDER), first:last].transpose(1, 0, 2)
            return self.node.literal(np.ascontiguousarray(rows.reshape(shape)))
        rows_of_gates = gc.TransposeOp(
            _in_order(
                gc.SliceOp(
                    self.node[1],
                    starts=(0, first, 0),
                    sizes=(LstmCell.GATES, last - first, self.hidden),
                    steps=(1, 1, 1),
                )
            ),
            perm=(1, 0, 2),
        )
        return gc.ReshapeOp(rows_of_gates, shape=shape).result


def _in_order(gates: Operand) -> Operand:
    """A tensor whose first axis is that of gates, in ONNX's order."""
    _, *rest = shape_of(gates)
    zeros, ones = (0,) * len(rest), (1,) * len(rest)
    parts = [
        gc.SliceOp(gates, starts=(place, *zeros), sizes=(1, *rest), steps=(1, *ones))
        for place in ORDER
    ]
    return gc.ConcatOp(parts, axis=0)


class PopartLayer(Layer):
    """Without directions, and with the states at the beginning in one tensor."""

    @property
    def stacks(self) -> bool:
        return bool(self.node.integer("outputFullSequence", 1))

    def weights(self, direction: int, cell: Cell) -> Weights:
        return PopartWeights(self.node, direction, cell.hidden)

    def initial(self, index: int, direction: int, cell: Cell) -> SSAValue:
        given = self.node.optional(3)
        if given is None:
            return self.zero(cell)
        return one(given, cell.STATES.index(index))


@lowers("LSTM", domain=GRAPHCORE)
def lstm(node: Node) -> Lowered:
    hidden = _hidden(node)
    (loop,) = PopartLayer(node, cells_of(node, LstmCell, hidden, directions=1)).loops()
    output, cell = loop.finals
    return [loop.stacked[0] if loop.stacked else output, cell]


def _hidden(node: Node) -> int:
    """The size of the state; the shapes must fit each other."""
    x, weights = node.shape, shape_of(node[1])
    if len(x) != 3 or len(weights) != 3:
        raise TypeMismatchError("LSTM takes sequences and weights of 3 axes")
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
                hint=f"beside the other inputs it is {list(shape)}",
            )
    return hidden
