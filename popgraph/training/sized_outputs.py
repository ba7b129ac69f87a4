"""Outputs with data-dependent shapes, which training steps do not return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.onnx import Graph, OnnxOp, model_of
from popgraph.dialects.onnx.outputs import set_outputs
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.passes.onnx.partition import host_nodes, is_bounded
from popgraph.support.arrays import Array
from popgraph.training.task import Task


def sized_by_data(graph: Graph) -> set[SSAValue]:
    """The values of a graph with data-dependent shapes, unless their types are static."""
    found = set[SSAValue]()
    for op in graph.block.ops:
        depends = any(operand in found for inner in op.walk() for operand in inner.operands)
        found.update(value for value in op.results if depends or value in _data_sized_results(op))
    return {value for value in found if static_shape(value.type) is None}


def without_sized_outputs(
    task: Task, samples: Mapping[str, Array], values: Mapping[str, Array]
) -> Task:
    """
    Removes outputs with data-dependent shapes, such as the logits of selected tokens.

    A step is one program with static output shapes; the trained model still returns them.
    """
    graph = model_of(task.module).graph
    sized, given = sized_by_data(graph), zip(graph.output_names, graph.yielded, strict=True)
    doubtful = {name for name, value in given if name != task.loss and value in sized}
    if not doubtful:
        return task
    known = {name: array.shape for name, array in {**samples, **values}.items()}
    shapes = {name: shape for name, shape in known.items() if name in graph.input_names}
    case = task.module.clone()
    specialise(case, shapes, WeightStore(task.weights), dict(values))
    types = zip(graph.output_names, model_of(case).graph.yielded, strict=True)
    lost = {name for name, value in types if name in doubtful and static_shape(value.type) is None}
    if not lost:
        return task
    module = task.module.clone()
    graph = model_of(module).graph
    outputs = zip(graph.output_names, graph.outputs, graph.yielded, strict=True)
    set_outputs(graph, [(info, value) for name, info, value in outputs if name not in lost])
    return replace(task, module=module)


def may_need_several_programs(module: ModuleOp) -> bool:
    """Whether inference of this model may need several programs."""
    return bool(host_nodes(module)) or any(
        map(_data_sized_results, model_of(module).graph.block.ops)
    )


def _data_sized_results(op: Operation) -> Sequence[SSAValue]:
    """The results of a node whose shapes may depend on data."""
    if is_bounded(op):
        return op.results
    if isinstance(op, OnnxOp) and (op.domain, op.op_type) == ("", "Loop"):
        rows = op.output_values()[len(op.input_values()) - 2 :]
        return [value for value in rows if value is not None]
    return ()
