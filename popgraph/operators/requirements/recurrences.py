"""What LSTM, GRU and RNN ask of their weights, states and activations."""

from __future__ import annotations

from xdsl.dialects.builtin import FloatAttr

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim, NamesAttr
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import differ, of_rank, of_shape
from popgraph.operators.record import requires

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
"""How many activations a direction has."""


@requires("RNN", "GRU", "LSTM")
def recurrence(node: NodeView) -> Complaints:
    for index in range(3):
        yield from of_rank(node, index, 3)
    yield from _attributes(node)
    x, recurrent = node.shape_of(0), node.shape_of(2)
    if x is None or recurrent is None:
        return
    hidden = recurrent[2]
    yield from _hidden_size(node, hidden)
    batch = x[0] if node.integer("layout") else x[1]
    yield from _weights(node, x[2], hidden)
    if node.has(4):
        yield from of_shape(node, 4, batch)
    directions = _directions(node)
    first = (batch, directions) if node.integer("layout") else (directions, batch)
    for index in (5, 6):
        if node.has(index):
            yield from of_shape(node, index, *first, hidden)


def _directions(node: NodeView) -> int:
    return 2 if node.text("direction") == "bidirectional" else 1


def _weights(node: NodeView, features: Dim, hidden: Dim) -> Complaints:
    directions, gates = _directions(node), GATES[node.op.op_type]
    yield from of_shape(node, 1, directions, _times(gates, hidden), features)
    yield from of_shape(node, 2, directions, _times(gates, hidden), hidden)
    for index, count in ((3, 2 * gates), (7, 3)):
        if node.has(index):
            yield from of_shape(node, index, directions, _times(count, hidden))


def _times(count: int, size: Dim) -> Dim:
    return count * size if isinstance(size, int) else None


def _hidden_size(node: NodeView, hidden: Dim) -> Complaints:
    if hidden == 0:
        yield TypeConflict("its state has no elements", "the last axis of `R` is 1 or more")
    given = node.integer("hidden_size", -1)
    if "hidden_size" in node.op.properties and differ(hidden, given):
        yield TypeConflict(
            f"`hidden_size` is {given}, but `R` is for {hidden}", "they are the same number"
        )


def _attributes(node: NodeView) -> Complaints:
    names = node.op.properties.get("activations")
    wanted = _directions(node) * FUNCTIONS[node.op.op_type]
    if isinstance(names, NamesAttr) and len(names.texts) != wanted:
        yield TypeConflict(f"it has {len(names.texts)} activations", f"it has {wanted} of them")
    clip = node.op.properties.get("clip")
    if isinstance(clip, FloatAttr) and not clip.value.data > 0:
        yield TypeConflict(f"`clip` is {clip.value.data:g}", "it is more than 0")
