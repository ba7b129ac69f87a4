"""Access to the `pg.graph` of a module, its outputs, and the expansion of composites."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects.graphcore.base import Composite
from popgraph.dialects.program import GraphOp, ReturnOp, graphs_of
from popgraph.passes.analysis.repeats import Repeats
from popgraph.passes.analysis.replace import made_for
from popgraph.support.errors import PassError


def only_graph(module: ModuleOp) -> GraphOp:
    """The graph of a module; raises an error unless there is exactly one."""
    graphs = graphs_of(module)
    if len(graphs) != 1:
        raise PassError(f"the module must contain exactly one pg.graph, not {len(graphs)}")
    return graphs[0]


def set_outputs(graph: GraphOp, outputs: Mapping[str, SSAValue]) -> None:
    """Replaces the outputs of a graph, except outputs of index checks."""
    before, checks = graph.outputs, graph.return_op.index_checks
    kept = {**outputs, **{check.output: before[check.output] for check in checks}}
    Rewriter.erase_op(graph.return_op)
    graph.block.add_op(ReturnOp(list(kept.values()), list(kept), checks))


def expanded(op: Composite, repeats: Repeats | None = None) -> None:
    """Replaces a composite by the operations that define it, or by copies of such."""
    values = repeats.copied(op) if repeats else None
    if values is None:
        with made_for(op) as made:
            values = [SSAValue.get(value) for value in op.expand()]
        if repeats:
            repeats.note(op, made, values)
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    Rewriter.erase_op(op)
