"""Requests for gradient accumulation: a program for micro-batches or stages, and an update."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from xdsl.ir import Operation, SSAValue

from popgraph.backends.base import Executable
from popgraph.backends.registry import backend_named
from popgraph.compiler import BuildRequest, lower
from popgraph.dialects.graphcore.base import Contraction, GraphcoreOp, Random, shape_of
from popgraph.dialects.graphcore.contractions import Convolution
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp, UpdateOp, VariableOp
from popgraph.engine.program_code import ProgramCode
from popgraph.engine.program_stages import StagedCode
from popgraph.engine.stages import StageNode, Stages
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.analysis.stage_notes import note_stage
from popgraph.passes.graphcore.stages.places import Pipeline, UncutError
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import Training
from popgraph.support.errors import RunError, reporting_out_of_memory
from popgraph.support.ranks.communicator import SingleRank
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class AccumulatingRequest(BuildRequest):
    """
    Requests a program that runs once per micro-batch and updates after the last one.

    A native backend builds two programs with the same variables, so micro-batches do not pay for
    the update, and memory is that of one micro-batch.
    """

    replicas: int = 1
    """Micro-batches that run in parallel."""
    stages: int = 1
    """Pipeline stages, one thread each."""

    @staticmethod
    def of(request: BuildRequest, replicas: int = 1, stages: int = 1) -> AccumulatingRequest:
        """The same request, with separate update programs."""
        given = {one.name: getattr(request, one.name) for one in fields(BuildRequest)}
        return AccumulatingRequest(**given, replicas=replicas, stages=stages)

    def executable(self) -> Executable:
        with reporting_out_of_memory():
            if self.stages > 1 and backend_named(self.backend).is_native:
                return self._pipelined()
            code = self._code()
            return code.build(self.backend, self.threads, self.backlog, self.replicas)

    def _code(self) -> ProgramCode:
        return ProgramCode.lowered_from(self.module, self.compilation, self.options, self.settled)

    @property
    def _training(self) -> Training:
        training = self.options.training
        assert training is not None, "only a program that trains accumulates"
        return training

    def _pipelined(self) -> Executable:
        """The program as a pipeline, with at least one thread per stage."""
        training, last = self._training, OnnxToGraphcore.name
        lower(self.module, self.compilation, self.options, until=last, settled=self.settled)
        graph = only_graph(self.module)
        moved = {op.variable.text for op in graph.updates()} | set(training.frozen)
        trained = [op.variable.text for op in graph.variables() if op.variable.text not in moved]
        pipeline = assign_stages(graph, training.loss, trained, self.stages)
        threads = max(self.threads, self.stages)
        try:
            return StagedCode(self._code(), pipeline, self.backend, threads, SingleRank()).build()
        except UncutError as error:
            raise RunError(
                f"the model does not divide into stages: {error.what}", "stages", "replicas"
            ) from error


def assign_stages(graph: GraphOp, loss: str, trained: Collection[str], count: int) -> Pipeline:
    """
    Assigns a stage to each operation of the forward pass, in program order.

    Each stage gets about the same share of the total cost (multiply-adds plus elements).
    """
    ops = [op for op in graph.block.ops if _is_computed(op)]
    weights = [op for op in graph.variables() if op.variable.text in set(trained)]
    groups = _stage_groups(ops, weights)
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
        note_stage(op, stage)
    names = _names(graph, loss)
    nodes = tuple(
        StageNode(stage, stage, _known_names(names, op.operands), _known_names(names, op.results))
        for op, stage in zip(ops, stages, strict=True)
    )
    return Stages(nodes, loss, trained).pipeline


def _stage_groups(ops: Sequence[Operation], weights: Sequence[VariableOp]) -> list[list[Operation]]:
    """Consecutive operations that must share a stage because they span all readers of a weight."""
    positions = {op: position for position, op in enumerate(ops)}
    joined = [False] * len(ops)  # whether one is on the stage of the one before it
    for weight in weights:
        readers = [
            positions[use.operation] for use in weight.result.uses if use.operation in positions
        ]
        for position in range(min(readers, default=0) + 1, max(readers, default=0) + 1):
            joined[position] = True
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


def _known_names(names: dict[SSAValue, str], values: Collection[SSAValue]) -> tuple[str, ...]:
    return tuple(names[value] for value in values if value in names)
