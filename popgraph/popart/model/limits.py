"""Operators and forms that ONNX allows and PopART refuses."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.builder.opset.checks import complaint
from popgraph.builder.opset.checks.elementwise import RANDOM
from popgraph.builder.opset.checks.node import described
from popgraph.builder.opset.checks.reading import node_of, nodes_of
from popgraph.dialects.onnx import Graph, OnnxOp, value_name
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.functions import definition_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.to_graphcore.refusals import is_unknown
from popgraph.popart.exceptions import popart_exception, popart_unsupported_exception
from popgraph.popart.model.aborts import ABORT

LAST_OPSET = 11
"""PopART's last version of ai.onnx; models of later versions are not PopART programs."""

HINT = "PopART does without it, and so do its sessions; `popgraph.compile` may take it"


def check_limits(graph: Graph, weights: WeightStore, opset: int) -> None:
    """Raises PopART's error for the first node that PopART would refuse."""
    for op, node in nodes_of(graph, weights):
        known = op.domain or opset <= LAST_OPSET or op.op_type in RANDOM
        if known and (said := complaint(node)) is not None:
            raise _refused(said, op)


def check_calls(graph: Graph) -> None:
    """Refuses calls whose operands do not match the inputs of the callee."""
    for op in graph.block.walk():
        if not isinstance(op, Custom) or not op.is_call:
            continue
        (callee,) = op.graphs()["callee"]
        pairs = zip(op.input_values(), callee.inputs, strict=False)
        for place, (given, taken) in enumerate(pairs):
            if given is None:
                continue
            infos = described(given.type), described(taken.type)
            if None not in infos and infos[0] != infos[1]:
                error = popart_exception(
                    f"CallOp input (@{place}) does not match callee input tensor (@{place}):\n"
                    f"   {value_name(given)} -> {callee.graph_name.text}/{taken.text}\n"
                    f"   {infos[0]} vs {infos[1]}"
                )
                error.add_note(f"  at: {op.where()}")
                raise error


def check_classes(graph: Graph, functions: Mapping[tuple[str, str, str], Function]) -> None:
    """
    Refuses unknown operators: those without a definition, a function of the model, or an extension.
    """
    for op in graph.block.walk():
        if not isinstance(op, Custom) or op.key in functions or definition_of(*op.key[:2]):
            continue
        if is_unknown(op) and op.key[:2] != ABORT:
            raise popart_unsupported_exception(
                f"No class for {op.domain}.{op.op_type}:0",
                op.where(),
                "`popgraph ops` lists what there is; docs/extend.md says how to add an operator",
            )


def refusal_while_read(op: OnnxOp) -> popart_exception | None:
    """The same error for a node that is invalid in ONNX too, so that no graph can be built."""
    said = complaint(node_of(op, WeightStore()))
    return None if said is None else _refused(said, op)


def _refused(complaint: str, op: OnnxOp) -> popart_exception:
    """The exact text of PopART, which programs compare; the location and the hint are notes."""
    error = popart_exception(complaint)
    error.add_note(f"  at: {op.where()}")
    error.add_note(f"  try: {HINT}")
    return error
