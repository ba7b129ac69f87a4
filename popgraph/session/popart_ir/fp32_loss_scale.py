"""A loss scale in single precision, where the loss is of half precision."""

from __future__ import annotations

from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.graph import Op, OpGraph, Settings
from popgraph.session.popart_ir.remote_ops import shown

_HALF, _SINGLE = "FLOAT16", "FLOAT"

_SCALED_BY = {"NllGrad": 2, "SoftmaxGradDirect": 2, "NlllWithSoftmaxGradDirect": 2, "L1Grad": 1}
"""Gradients of losses that take a loss scale of another precision, and the input that it is."""


def widen_loss_scale(graph: OpGraph, scaling: str | None) -> None:
    """
    Makes a loss scale of half precision one of single precision, and what hands it on alike.

    The first operators that compute with it take it as it is, or compute in single precision.
    """
    if scaling is None or graph.infos[scaling].data_type() != _HALF:
        return
    _widen(graph, scaling)
    waiting, seen = graph.consumers(scaling), set[Op]()
    while waiting:
        op = waiting.pop(0)
        if op in seen:
            continue
        seen.add(op)
        if _hands_on(graph, op):
            for id in op.outputs.values():
                _widen(graph, id)
                waiting += graph.consumers(id)
        else:
            _compute_wide(graph, op)


def _widen(graph: OpGraph, id: str) -> None:
    graph.infos[id] = TensorInfo(_SINGLE, graph.shape(id))


def _hands_on(graph: OpGraph, op: Op) -> bool:
    """Whether an operator only makes another tensor of its one input, of the same type."""
    return len(op.inputs) == 1 and all(
        graph.infos[id].data_type() == _HALF for id in op.outputs.values()
    )


def _compute_wide(graph: OpGraph, op: Op) -> None:
    for id in op.outputs.values():
        if graph.infos[id].data_type() != _HALF:
            raise popart_exception(
                f"EnsureFp32LossScale: Unable to apply the transform on graph '{graph.name}'. "
                f"Graph traversal terminating at Op '{shown(op)}', but output tensor '{id}' is "
                "not of data type fp16.",
                "SessionOptions.ensureFp32LossScaleTensor",
            )
    scaled = op.inputs.get(_SCALED_BY.get(op.type, -1))
    if scaled is not None and graph.infos[scaled].nelms() == 1:
        return
    for index, id in list(op.inputs.items()):
        if graph.infos[id].data_type() == _HALF:
            wide = graph.fresh(id, TensorInfo(_SINGLE, graph.shape(id)))
            graph.add(_cast(op, id, wide), before=op)
            graph.connect(op, index, wide)
    for index, id in list(op.outputs.items()):
        wide = graph.fresh(id, TensorInfo(_SINGLE, graph.shape(id)))
        graph.rename_output(op, index, wide)
        behind = graph.ops.index(op) + 1
        place = graph.ops[behind] if behind < len(graph.ops) else None
        graph.add(_cast(op, wide, id), before=place)


def _cast(op: Op, source: str, output: str) -> Op:
    told = op.settings
    settings = Settings(ipu=told.ipu, stage=told.stage, phase=told.phase)
    return Op("Cast", {0: source}, {0: output}, {}, settings, backward=op.backward)
