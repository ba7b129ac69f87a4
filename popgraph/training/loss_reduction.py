"""Finds whether a loss is a mean or a sum over the samples of a batch."""

from __future__ import annotations

from collections.abc import Container, Iterator

from xdsl.ir import BlockArgument, Operation, SSAValue

from popgraph.dialects.onnx import OnnxOp, model_of
from popgraph.training.sized_outputs import sized_by_data
from popgraph.training.task import Task

MEAN, SUM = "mean", "sum"


def reduction_of(task: Task, name: str) -> str | None:
    """Whether an output is a mean or a sum over samples; None if its operators do not say."""
    graph = model_of(task.module).graph
    values = dict(zip(graph.output_names, graph.yielded, strict=True))
    sized = sized_by_data(graph)
    found = set(_reductions(values[name], task, sized)) if name in values else set()
    return found.pop() if len(found) == 1 else None


_KEEPS = frozenset(["Add", "Sub", "Neg", "Identity", "Cast", "Reshape", "Squeeze", "Sum"])
"""Operators that keep the reduction of their operands."""
_SCALES = frozenset(["Mul", "Div"])
"""Operators that keep it if one operand does not depend on samples."""
_LOSSES = frozenset(
    ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "Nll", "L1", "IdentityLoss"]
)


_IGNORED = ("ignore_index", "ignoreIndex")


def _reductions(value: SSAValue, task: Task, sized: Container[SSAValue]) -> Iterator[str | None]:
    """
    Yields the reductions over samples in a value; None for an unknown one.

    A mean over elements selected by data (a value in `sized`) is not a mean over samples.
    """
    op = value.owner
    if not isinstance(op, OnnxOp) or not _reads_samples(value):
        return
    kind = op.op_type
    if kind in ("ReduceMean", "ReduceSum"):
        mean = None if op.operands[0] in sized else MEAN
        yield mean if kind == "ReduceMean" else SUM
    elif kind in _LOSSES:
        said = op.attribute_values(task.weights)
        told = str(said.get("reduction", MEAN)).lower()
        # A mean with class weights or ignored samples divides by the sum of weights, not by the
        # number of samples.
        weighs = len(op.operands) > 2 or any(name in said for name in _IGNORED)
        weighs = weighs or op.operands[0] in sized
        yield told if told == SUM or (told == MEAN and not weighs) else None
    elif kind in _KEEPS or (kind in _SCALES and sum(map(_reads_samples, op.operands)) == 1):
        for operand in op.operands:
            yield from _reductions(operand, task, sized)
    else:
        yield None


def _reads_samples(value: SSAValue) -> bool:
    """Whether a value depends on inputs of the model."""
    seen, waiting = set[SSAValue](), [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BlockArgument):
            return True
        if one not in seen and isinstance(one.owner, Operation):
            seen.add(one)
            waiting += one.owner.operands
    return False
