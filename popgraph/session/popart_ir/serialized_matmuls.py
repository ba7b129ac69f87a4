"""Matrix products that the user had computed in parts, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.dialects.onnx import SCHEMAS
from popgraph.dialects.onnx.annotations import (
    SERIALIZED,
    SERIALIZED_FACTOR,
    SERIALIZED_PRECISION,
)
from popgraph.session.limits import LAST_OPSET
from popgraph.session.popart_ir.expression import added, finish
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.matmuls import FORWARD, LEFT, PHASE, RIGHT
from popgraph.session.popart_ir.moves import permutation
from popgraph.session.popart_ir.updates import COMBINED
from popgraph.support.logs import log_of


@dataclass(frozen=True)
class _Plan:
    """Along which of the last three axes the operands are cut, and how results are joined."""

    left: int | None
    right: int | None
    join: int | str
    """The axis along which results are concatenated, or "add", or "update"."""


_PLANS = {
    ("input_channels", FORWARD): _Plan(1, None, 1),
    ("input_channels", LEFT): _Plan(1, None, 1),
    ("input_channels", RIGHT): _Plan(2, 1, "add"),
    ("reducing_dim", FORWARD): _Plan(2, 1, "add"),
    ("reducing_dim", LEFT): _Plan(None, 2, 2),
    ("reducing_dim", RIGHT): _Plan(1, None, "update"),
    ("output_channels", FORWARD): _Plan(None, 2, 2),
    ("output_channels", LEFT): _Plan(2, 1, "add"),
    ("output_channels", RIGHT): _Plan(None, 2, "update"),
}


def serialize_matmuls(graph: OpGraph) -> None:
    """MatMul -> as many products of slices as asked for, whose results are joined."""
    for op in [op for op in graph.ops if op.type == "MatMul"]:
        phase = str(op.attributes.get(PHASE, FORWARD))
        plan = _PLANS.get((str(op.attributes.get(SERIALIZED)), phase))
        if plan is not None and op.integers_or(SERIALIZED_FACTOR, 1) > 1:
            _serialize(graph, op, plan)


def _serialize(graph: OpGraph, op: Op, plan: _Plan) -> None:
    count = op.integers_or(SERIALIZED_FACTOR, 1)
    parts = [_part(graph, op, plan, number, count) for number in range(count)]
    if plan.join == "add":
        finish(graph, op, _sum(graph, op, parts))
        return
    axis = plan.join if isinstance(plan.join, int) else (plan.left or plan.right or 1)
    if plan.join == "update" and (path := _path_to_update(graph, op)):
        _update_parts(graph, op, parts, path, axis)
    else:
        place = len(graph.shape(op.output)) - 3 + axis
        finish(graph, op, _added(graph, op, "Concat", parts, {"axis": place}))


def _part(graph: OpGraph, op: Op, plan: _Plan, number: int, count: int) -> str:
    inputs = [
        _slice(graph, op, op.input(index), axis, number, count)
        for index, axis in enumerate((plan.left, plan.right))
    ]
    a, b = (graph.shape(id) for id in inputs)
    info = TensorInfo(graph.infos[op.output].data_type(), [*a[:-2], a[-2], b[-1]])
    told = (SERIALIZED, SERIALIZED_FACTOR, SERIALIZED_PRECISION)
    attributes = {name: value for name, value in op.attributes.items() if name not in told}
    made = added(graph, op, "MatMul", inputs, info, attributes)
    for id in inputs:
        graph.tie(id, made)
    return made


def _slice(graph: OpGraph, op: Op, id: str, axis: int | None, number: int, count: int) -> str:
    if axis is None:
        return id
    info = graph.infos[id]
    shape, place = info.shape(), info.rank() - 3 + axis
    size = shape[place] // count
    shape[place] = size
    attributes: dict[str, object] = {
        "starts": [number * size],
        "ends": [(number + 1) * size],
        "axes": [place],
    }
    return added(graph, op, "Slice", [id], TensorInfo(info.data_type(), shape), attributes)


def _added(
    graph: OpGraph, op: Op, type_: str, inputs: list[str], attributes: dict[str, object]
) -> str:
    return added(graph, op, type_, inputs, graph.infos[op.output], attributes)


def _sum(graph: OpGraph, op: Op, parts: list[str]) -> str:
    total = parts[0]
    for part in parts[1:]:
        total = _added(graph, op, "AddLhsInplace", [total, part], {})
    if op.attributes.get(SERIALIZED_PRECISION) and graph.infos[op.output].data_type() != "FLOAT":
        total = _added(graph, op, "Cast", [total], {})
    return total


_RESHAPES, _TRANSPOSES = ("Reshape", "ReshapeGrad"), ("Transpose", "TransposeGrad")
_COPIES = ("Identity", "IdentityGrad", "CastGrad")
_PASSED = (*_RESHAPES, *_TRANSPOSES, *_COPIES, "ReduceSum")
"""What may stand between a product and an update of slices."""
_SHARED = "Do not currently support serializing ops for tensors which have more than 1 consumer"
_BETWEEN = "Do not currently support %s when serializing matmuls"


def _identified(type_: str) -> str:
    """A type with its domain and the newest version that PopART has."""
    versions = [
        one.since_version
        for one in SCHEMAS
        if (one.domain, one.name) == ("", type_) and one.since_version <= LAST_OPSET
    ]
    return f"ai.onnx.{type_}:{max(versions)}" if versions else f"ai.graphcore.{type_}:1"


def _path_to_update(graph: OpGraph, op: Op) -> list[Op]:
    """What stands between a product and the update of its weight; nothing if more than moves."""
    path: list[Op] = []
    id = op.output
    while True:
        users = graph.consumers(id)
        if len(users) > 1:
            log_of("transform").warning(_SHARED)
        if len(users) != 1 or graph.is_protected(id):
            return []
        (user,) = users
        path.append(user)
        if user.type == COMBINED:
            return path
        if user.type not in _PASSED:
            log_of("transform").warning(_BETWEEN, _identified(user.type))
            return []
        id = user.output


def _update_parts(graph: OpGraph, op: Op, parts: list[str], path: list[Op], axis: int) -> None:
    """Every part of the gradient updates its own slice of the weight."""
    update = path[-1]
    weight = update.input(0)
    made: Op | None = None
    for number, part in enumerate(parts):
        first = graph.producer(part)
        if made is not None and first is not None:
            graph.run_after(first, made)
        place = max(0, graph.infos[weight].rank() - (3 - axis))
        value = part
        for step in path[:-1]:
            value = _passed(graph, update, step, value, 3 - axis, len(parts))
            if step.type in _TRANSPOSES:
                place = permutation(graph, step)[place]
        info = graph.infos[weight]
        size = info.shape()[place] // len(parts)
        shape = info.shape()
        shape[place] = size
        bounds: dict[str, object] = {
            "starts": [number * size],
            "ends": [(number + 1) * size],
            "axes": [place],
        }
        own = TensorInfo(info.data_type(), shape)
        slice_ = added(graph, update, "SliceInplace", [weight], own, bounds)
        cut, last = graph.producer(slice_), graph.producer(value)
        if cut is not None and last is not None:
            graph.run_after(cut, last)
        updated = added(graph, update, COMBINED, [slice_, value], own, dict(update.attributes))
        made = graph.producer(updated)
        assert made is not None, "an update was added"
        made.writes = True
    for gone in [*reversed(path), op]:
        graph.remove(gone)


def _passed(graph: OpGraph, update: Op, step: Op, value: str, from_end: int, count: int) -> str:
    """A part of a gradient behind what the whole one passes."""
    if step.type in _COPIES:
        return value
    if step.type in _TRANSPOSES:
        perm, info = permutation(graph, step), graph.infos[value]
        turned = TensorInfo(info.data_type(), [info.shape()[axis] for axis in perm])
        return added(graph, update, "Transpose", [value], turned, {"perm": perm})
    type_ = "Reshape" if step.type in _RESHAPES else step.type
    info = _cut(graph.infos[step.output], from_end, count)
    return added(graph, update, type_, [value], info, dict(step.attributes))


def _cut(info: TensorInfo, from_end: int, count: int) -> TensorInfo:
    shape = info.shape()
    if len(shape) >= from_end:
        shape[-from_end] //= count
    return TensorInfo(info.data_type(), shape)
