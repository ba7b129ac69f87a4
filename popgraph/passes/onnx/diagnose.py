"""Diagnosis of a model without compiling it: nodes that do not compile, with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp, TensorType

from popgraph.dialects import element_types
from popgraph.dialects.onnx import Graph, Model, OnnxOp, SchemaOp, model_of
from popgraph.dialects.onnx.containers import Function, input_types
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.expansion import schema_function
from popgraph.dialects.onnx.functions import function_of
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.enclose_gradients import enclose_gradients
from popgraph.passes.onnx.normalize import Normalize
from popgraph.passes.onnx.partition import (
    Segment,
    host_nodes,
    is_literal,
    partition,
    python_nodes,
    why_hosted,
)
from popgraph.passes.onnx.structural_inputs import structural_inputs
from popgraph.passes.onnx.to_graphcore.lowering import Lowering
from popgraph.passes.onnx.to_graphcore.refusals import (
    Refusals,
    is_unknown,
    operator,
    place_of,
    unknown_operator,
)
from popgraph.support.errors import PopgraphError, UnsupportedError


@dataclass
class Diagnosis:
    """The nodes of a model: compiled, computed by Python, or refused."""

    nodes: int = 0
    """Number of nodes of the main graph, without constants."""
    hosted: list[tuple[str, str, str]] = field(default_factory=list)
    """Operator, place and reason of each node that Python computes."""
    refused: list[PopgraphError] = field(default_factory=list)
    is_open: bool = False
    """Whether shapes or structures are unknown, so that only operators were checked."""

    @property
    def compiled(self) -> int:
        return self.nodes - len(self.hosted) - len({one.where for one in self.refused})


def diagnose(module: ModuleOp, store: WeightStore) -> Diagnosis:
    """
    Checks every node of a model, as far as shapes are known, without changing the module.

    Nodes that Python computes are separated first, then each segment between them is lowered.
    """
    copy, store = module.clone(), WeightStore(store)
    enclose_gradients(copy)
    found = Diagnosis(sum(not is_literal(op) for op in model_of(module).graph.nodes))
    for op in python_nodes(copy):
        found.hosted.append((operator(op), place_of(op), why_hosted(op)))
    pieces = [copy]
    if host_nodes(copy):
        steps = partition(copy, store)
        pieces = [step.module for step in steps if isinstance(step, Segment)]
    for piece in pieces:
        _look_at(piece, store, found)
    return found


def _look_at(module: ModuleOp, store: WeightStore, found: Diagnosis) -> None:
    """Adds findings about a model without nodes that Python computes."""
    model = model_of(module)
    if _is_open(module, store):
        found.is_open = True
        found.refused += _unknown(model, model.graph, store)
        return
    refusals = Refusals(thorough=True)
    try:
        Normalize().run(Compilation(store), module)
        Lowering(store, training=False, refusals=refusals).graph(model.graph, ())
    except PopgraphError as error:
        found.refused += refusals.errors or [error]
    for needed in refusals.hosted:
        assert isinstance(needed.node, OnnxOp), "lowering says where it was"
        found.hosted.append((operator(needed.node), needed.where, needed.what))


def _is_open(module: ModuleOp, store: WeightStore) -> bool:
    types = input_types(module).values()
    known = all(
        isinstance(type_, TensorType)
        and static_shape(type_) is not None
        and element_types.is_number(type_.element_type)
        for type_ in types
    )
    return not known or bool(structural_inputs(module, store))


def _unknown(
    model: Model, body: Graph | Function, store: WeightStore
) -> Iterator[UnsupportedError]:
    """Errors for nodes whose operators have no implementation."""
    for op in body.walk():
        if isinstance(op, OnnxOp) and not _is_known(model, op, store):
            yield _unknown_node(op)


def _is_known(model: Model, op: OnnxOp, store: WeightStore) -> bool:
    """Whether an operator has a lowering, or a definition by operators that have one."""
    if not is_unknown(op) or is_literal(op):
        return True
    if isinstance(op, Custom):
        function = function_of(op, model.functions)
        return function is not None and not any(_unknown(model, function, store))
    return isinstance(op, SchemaOp) and (
        op.SCHEMA.has_context_dependent_function
        or schema_function(op, model.opset_versions, store) is not None
    )


def unknown_operators(module: ModuleOp, store: WeightStore) -> list[PopgraphError]:
    """Errors for nodes of the main graph, without graphs inside, that have no implementation."""
    model, hosted = model_of(module), set(host_nodes(module))
    return [
        _unknown_node(op)
        for op in model.graph.nodes
        if op not in hosted and not op.graphs() and not _is_known(model, op, store)
    ]


def _unknown_node(op: OnnxOp) -> UnsupportedError:
    error = unknown_operator(op)
    return UnsupportedError(error.what, place_of(op), error.hint)


def kinds(hosted: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str], list[str]]:
    """The places of nodes that Python computes, grouped by operator and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, place, reason in hosted:
        found.setdefault((name, reason), []).append(place)
    return found
