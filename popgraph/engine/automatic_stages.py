"""Automatic stages: cuts a graph into pipeline stages of about equal cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import Operation, SSAValue

from popgraph.dialects.graphcore.base import Contraction, GraphcoreOp, Random, shape_of
from popgraph.dialects.graphcore.contractions import Convolution
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp, UpdateOp, VariableOp
from popgraph.engine.stages import Staged, Stages
from popgraph.passes.analysis.stage_notes import put_on_stage
from popgraph.passes.graphcore.stages.places import Pipeline
from popgraph.support.errors import RunError
from popgraph.support.shapes import prod


def put_on_stages(graph: GraphOp, loss: str, trained: Collection[str], count: int) -> Pipeline:
    """
    Assigns a stage to each operation of the forward pass, in program order.

    Each stage gets about the same share of the total cost (multiply-adds plus elements).
    """
    ops = [op for op in graph.block.ops if _is_computed(op)]
    weights = [op for op in graph.variables() if op.variable.text in set(trained)]
    groups = _groups(ops, weights)
    costs = [sum(map(_cost, group)) for group in groups]
    total, before, stages = sum(costs) or 1, 0, list[int]()
    for group, cost in zip(groups, costs, strict=True):
        middle = before + cost / 2
        stages += [min(count - 1, int(middle * count / total))] * len(group)
        before += cost
    if len(set(stages)) < count:
        raise RunError(
            f"the model does not divide into {count} stages: {max(costs) / total:.0%} of a step is "
            "one operation, or several with a common weight",
            "stages",
            "fewer stages, or replicas",
        )
    for op, stage in zip(ops, stages, strict=True):
        put_on_stage(op, stage)
    names = _names(graph, loss)
    nodes = tuple(
        Staged(stage, stage, _of(names, op.operands), _of(names, op.results))
        for op, stage in zip(ops, stages, strict=True)
    )
    return Stages(nodes, loss, trained).pipeline


def _groups(ops: Sequence[Operation], weights: Sequence[VariableOp]) -> list[list[Operation]]:
    """Consecutive operations that must share a stage because they span all readers of a weight."""
    places = {op: place for place, op in enumerate(ops)}
    joined = [False] * len(ops)  # whether one is on the stage of the one before it
    for weight in weights:
        readers = [places[use.operation] for use in weight.result.uses if use.operation in places]
        for place in range(min(readers, default=0) + 1, max(readers, default=0) + 1):
            joined[place] = True
    groups: list[list[Operation]] = []
    for op, is_joined in zip(ops, joined, strict=True):
        if is_joined:
            groups[-1].append(op)
        else:
            groups.append([op])
    return groups


def _is_computed(op: Operation) -> bool:
    """
    Whether an operation belongs to a stage; the random step counter does not, it follows batches.
    """
    if isinstance(op, ConstantOp | VariableOp | UpdateOp | ReturnOp):
        return False
    owners = [value.owner for value in op.operands]
    counts = any(isinstance(one, VariableOp) and one.variable.text == SEED for one in owners)
    return isinstance(op, Random) or not counts


def _cost(op: Operation) -> int:
    """The multiply-adds of a contraction; the number of result elements otherwise."""
    elements = sum(prod(shape_of(result)) for result in op.results)
    if not isinstance(op, Contraction) or not isinstance(op, GraphcoreOp):
        return elements
    kernel = shape_of(op.operands[1])
    depth = prod(kernel[1:]) if isinstance(op, Convolution) else shape_of(op.operands[0])[-1]
    return elements * depth


def _names(graph: GraphOp, loss: str) -> dict[SSAValue, str]:
    """A unique name for each value: variables and the loss keep theirs."""
    names: dict[SSAValue, str] = {op.result: op.variable.text for op in graph.variables()}
    values = (result for op in graph.block.ops for result in op.results)
    for number, value in enumerate(values):
        names.setdefault(value, f"%{number}")
    names[graph.outputs[loss]] = loss
    return names


def _of(names: dict[SSAValue, str], values: Collection[SSAValue]) -> tuple[str, ...]:
    return tuple(names[value] for value in values if value in names)
