"""PopART's pattern PadSum: a sum of tensors that zeros were put around is their concatenation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.expression import added, finish
from popgraph.session.popart_ir.graph import Op, OpGraph


@dataclass(frozen=True)
class _Padded:
    """A tensor between zeros along one axis."""

    id: str
    axis: int
    start: int
    end: int


def sum_of_pads(graph: OpGraph, op: Op) -> bool:
    """
    Sum(Pad(a), Pad(b)) -> Concat(Pad(a), Pad(b)). Only when zeros stand along one axis, and what
    they stand around does not overlap. The gradient of Slice is such a Pad, too.
    """
    if op.type not in ("Add", "Sum") or len(op.inputs) < 2:
        return False
    found = [_padded(graph, id) for id in op.inputs.values()]
    parts = [one for one in found if one is not None]
    if len(parts) < len(found) or len({one.axis for one in parts}) > 1:
        return False
    parts.sort(key=lambda one: one.start)
    if any(left.end > right.start for left, right in pairwise(parts)):
        return False
    _concatenate(graph, op, parts)
    return True


def _padded(graph: OpGraph, id: str) -> _Padded | None:
    before = graph.producer(id)
    if before is None or graph.is_protected(id):
        return None
    pads = _pads(graph, before)
    rank = len(graph.shape(id))
    axes = [axis for axis in range(rank) if pads and (pads[axis] or pads[axis + rank])]
    if len(axes) != 1 or min(pads) < 0:
        return None
    (axis,) = axes
    return _Padded(before.input(0), axis, pads[axis], graph.shape(id)[axis] - pads[axis + rank])


def _pads(graph: OpGraph, op: Op) -> list[int]:
    """How many zeros an operator puts before and behind each axis; nothing if it does not."""
    if op.type == "Pad" and op.attributes.get("mode", "constant") == "constant":
        return [] if op.attributes.get("value") else op.integers("pads")
    if op.type != "SliceGrad" or any(step != 1 for step in op.integers("_steps")):
        return []
    shape, starts = graph.shape(op.output), op.integers("starts") or op.integers("_starts")
    axes = op.integers("axes") or op.integers("_axes") or list(range(len(starts)))
    if not starts:
        return []
    before = [0] * len(shape)
    for axis, start in zip(axes, starts, strict=True):
        size = shape[axis]
        before[axis] = min(max(start + size if start < 0 else start, 0), size)
    part = graph.shape(op.input(0))
    behind = [size - pad - own for size, pad, own in zip(shape, before, part, strict=True)]
    return [*before, *behind]


def _concatenate(graph: OpGraph, op: Op, parts: list[_Padded]) -> None:
    """Every part takes the zeros before it, the last one those behind it, too."""
    axis, whole = parts[0].axis, graph.infos[op.output]
    rank, done, pieces = whole.rank(), 0, []
    for part in parts:
        behind = whole.shape()[axis] - part.end if part is parts[-1] else 0
        pads = [0] * (2 * rank)
        pads[axis], pads[rank + axis] = part.start - done, behind
        shape = whole.shape()
        shape[axis] = part.end - done + behind
        info = TensorInfo(whole.data_type(), shape)
        attributes: dict[str, object] = {"mode": "constant", "pads": pads, "value": 0.0}
        pieces.append(added(graph, op, "Pad", [part.id], info, attributes))
        done = part.end
    before = [graph.producer(id) for id in op.inputs.values()]
    finish(graph, op, added(graph, op, "Concat", pieces, whole, {"axis": axis}))
    for one in dict.fromkeys(before):
        if one is not None and not graph.uses(one.output):
            graph.remove(one)
