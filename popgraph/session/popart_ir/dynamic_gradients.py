"""Gradients of dynamic slices and updates: parts that are written into one tensor in turn."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.builder.opset.exceptions import popart_exception
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.schedule import scheduled


def write_dynamic_gradients(graph: OpGraph) -> None:
    """
    Writes operators of gradients as those of PopART that slice, update and empty tensors.

    What a slice was taken from has a gradient that is zero elsewhere; several of such, and a sum
    of others, are written one over the other.
    """
    parts: dict[Op, list[Op]] = {}
    for op in scheduled(graph):
        match op.type:
            case "DynamicSlicePadGrad":
                _pad(graph, op, parts)
            case "DynamicUpdateUpdaterGrad":
                op.type = "DynamicSlice"
            case "DynamicUpdateToUpdateGrad" if _is_alone(op):
                graph.replace_uses(op.output, op.input(0))
                graph.remove(op)
            case "DynamicUpdateToUpdateGrad" | "DynamicZeroGrad":
                op.type = "DynamicZero"
    for reader in sorted(parts, key=lambda op: op.number):
        _chain(graph, reader, parts[reader])


def _is_alone(op: Op) -> bool:
    """Whether no two parts have elements in common."""
    return bool(op.integers_or("noOverlap", 0))


def _pad(graph: OpGraph, op: Op, parts: dict[Op, list[Op]]) -> None:
    readers = graph.consumers(op.output)
    if len(readers) > 1:
        raise popart_exception("[DynamicOpTransform] exactly one consumer of PadGrad expected")
    op.type = "DynamicUpdateInplace" if _is_alone(op) else "DynamicAddInplace"
    op.inputs[2] = op.inputs.pop(0)
    for reader in readers:
        parts.setdefault(reader, []).append(op)


def _chain(graph: OpGraph, reader: Op, parts: Sequence[Op]) -> None:
    """Sum(a, b, pad(c), pad(d)) -> Add(Add(Sum(a, b), c), d), in place; an empty sum is zeros."""
    others: Op | None = None
    if reader.type == "Sum" or (reader.type == "Add" and len(parts) > 1):
        total = reader.output
        others = _without(graph, reader, parts)
    elif len(parts) > 1:
        raise popart_exception("Unhandled gradient consumng op in dynamicoptransform.")
    else:
        total = graph.fresh(parts[0].output, graph.infos[parts[0].output])
        for index, id in list(reader.inputs.items()):
            if id == parts[0].output:
                graph.connect(reader, index, total)
    held = graph.fresh(total, graph.infos[total])
    if others is not None:
        graph.rename_output(others, 0, held)
    else:
        settings = parts[0].settings.renamed(f"GradInit_{total}")
        zeros = Op("Init", {}, {0: held}, {"inittype": 1}, settings, backward=True)
        graph.add(zeros, before=parts[0])
    for op in parts:
        graph.connect(op, 0, held)
        op.inputs = dict(sorted(op.inputs.items()))
        held = total if op is parts[-1] else graph.fresh(total, graph.infos[total])
        graph.rename_output(op, 0, held)


def _without(graph: OpGraph, reader: Op, parts: Sequence[Op]) -> Op | None:
    """The sum of what is none of the parts, if there is anything."""
    written = {op.output for op in parts}
    left = [id for id in reader.inputs.values() if id not in written]
    made = None
    if left:
        inputs = dict(enumerate(left))
        made = Op("Sum", inputs, dict(reader.outputs), dict(reader.attributes), reader.settings)
        made.backward = reader.backward
        graph.add(made, before=reader)
    graph.forget(reader)
    return made
