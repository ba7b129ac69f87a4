"""The pattern that writes ONNX's LSTM as PopART's own."""

from __future__ import annotations

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.expression import added
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.moves import inverse

POPART = "popgraph.own_form"
"""An attribute that no serializer writes: an LSTM has PopART's operands."""

_GATES = 4


def lstm(graph: OpGraph, op: Op) -> bool:
    """LSTM of ONNX -> LSTM of PopART, with its weights joined gate by gate."""
    if op.type != "LSTM" or POPART in op.attributes or 1 not in op.inputs or op.backward:
        return False
    if op.attributes.get("direction", "forward") != "forward" or not op.outputs:
        return False
    weights = [_by_gate(graph, op, op.input(index)) for index in (1, 2)]
    inputs = {0: op.input(0), 1: _joined(graph, op, weights, axis=1)}
    if 3 in op.inputs:
        inputs[2] = _bias(graph, op, op.input(3))
    if 5 in op.inputs and 6 in op.inputs:
        inputs[3] = _joined(graph, op, [op.input(5), op.input(6)], axis=0)
    _outputs(graph, op, inputs)
    return True


def _by_gate(graph: OpGraph, op: Op, id: str) -> str:
    """Weights [1, 4 H, I] as [4, I, H], in PopART's order of gates."""
    _, rows, columns = graph.shape(id)
    parts = [_part(graph, op, id, gate, rows // _GATES) for gate in (2, 0, 3, 1)]
    perm = [0, 2, 1]
    shape = [1, columns, rows // _GATES]
    info = TensorInfo(graph.infos[id].data_type(), shape)
    turned = [added(graph, op, "Transpose", [one], info, {"perm": inverse(perm)}) for one in parts]
    return _joined(graph, op, turned, axis=0)


def _part(graph: OpGraph, op: Op, id: str, number: int, size: int) -> str:
    info = graph.infos[id]
    shape = [info.shape()[0], size, *info.shape()[2:]]
    attributes: dict[str, object] = {
        "starts": [number * size],
        "ends": [(number + 1) * size],
        "axes": [1],
    }
    return added(graph, op, "Slice", [id], TensorInfo(info.data_type(), shape), attributes)


def _joined(graph: OpGraph, op: Op, ids: list[str], axis: int) -> str:
    shape = graph.shape(ids[0])
    shape[axis] = sum(graph.shape(id)[axis] for id in ids)
    info = TensorInfo(graph.infos[ids[0]].data_type(), shape)
    return added(graph, op, "Concat", ids, info, {"axis": axis})


def _bias(graph: OpGraph, op: Op, id: str) -> str:
    """The two biases of each gate, added."""
    size = graph.shape(id)[1] // (2 * _GATES)
    halves = [
        _joined(graph, op, [_part(graph, op, id, gate + half, size) for gate in (2, 0, 3, 1)], 0)
        for half in (0, _GATES)
    ]
    return added(graph, op, "Add", halves, graph.infos[halves[0]])


def _outputs(graph: OpGraph, op: Op, inputs: dict[int, str]) -> None:
    """Reshapes and a slice give ONNX's outputs: all states, the last one, the last cell."""
    steps, batch, _ = graph.shape(op.input(0))
    hidden = graph.shape(op.input(2))[2]
    kind = graph.infos[op.input(0)].data_type()
    base = op.output
    states = graph.fresh(base, TensorInfo(kind, [steps, batch, hidden]))
    cell = graph.fresh(base, TensorInfo(kind, [batch, hidden]))
    attributes = {**op.attributes, POPART: True}
    made = Op("LSTM", inputs, {0: states, 1: cell}, attributes, op.settings)
    graph.add(made, before=op)
    last: dict[str, object] = {"starts": [steps - 1], "ends": [steps], "axes": [0]}
    rows = [("Reshape", states, {}), ("Slice", states, last), ("Reshape", cell, {})]
    for index, (type_, source, extra) in enumerate(rows):
        if index in op.outputs:
            result = {0: op.outputs[index]}
            graph.add(Op(type_, {0: source}, result, dict(extra), op.settings), before=op)
    graph.forget(op)
