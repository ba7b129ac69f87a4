"""Patterns of embeddings whose table is also the weight of a product."""

from __future__ import annotations

from popgraph.session.popart_ir.graph import Kind, Op, OpGraph

TIED, TIED_GRADIENT = "PopartTiedGather", "PopartTiedGatherGrad"


def tied_gather(graph: OpGraph, op: Op) -> bool:
    """Gather(w, i) -> PopartTiedGather(w, i). Only when a MatMul reads the variable w, too."""
    if op.type != "Gather" or graph.kind(op.input(0)) is not Kind.VARIABLE:
        return False
    if not any(user.type == "MatMul" for user in _through_views(graph, op.input(0))):
        return False
    op.type = TIED
    return True


def _through_views(graph: OpGraph, id: str) -> list[Op]:
    """What reads a tensor, or it in another shape or order of axes."""
    found = []
    for user in graph.consumers(id):
        if user.type in ("Transpose", "Reshape"):
            found += _through_views(graph, user.output)
        else:
            found.append(user)
    return found


def accumulate_sparsely(graph: OpGraph) -> None:
    """
    Accumulate(v, Add(PopartTiedGatherGrad(g, i), d)) -> the rows g are added to Accumulate(v, d).

    Only when the gradient of the table goes nowhere else and is not anchored.
    """
    for op in [op for op in graph.ops if op.type == "Accumulate"]:
        total = graph.producer(op.input(1))
        if total is None or total.type not in ("Add", "Sum") or len(total.inputs) != 2:
            continue
        sides = [graph.producer(id) for id in total.inputs.values()]
        sparse = next((one for one in sides if one and one.type == TIED_GRADIENT), None)
        if sparse is None or len(graph.consumers(total.output)) > 1:
            continue
        if graph.is_protected(total.output) or graph.is_protected(sparse.output):
            continue
        dense = next(id for id in total.inputs.values() if id != sparse.output)
        _add_rows(graph, op, sparse, dense)
        graph.remove(total)
        graph.remove(sparse)


def _add_rows(graph: OpGraph, op: Op, sparse: Op, dense: str) -> None:
    result = op.output
    graph.connect(op, 1, dense)
    middle = graph.fresh(result, graph.infos[result])
    graph.rename_output(op, 0, middle)
    place = graph.ops[graph.ops.index(op) + 1] if op is not graph.ops[-1] else None
    inputs = {0: middle, 1: sparse.input(0), 2: sparse.input(1)}
    settings = op.settings.renamed("PopartSparseAccumulate")
    made = Op(
        "PopartSparseAccumulate", inputs, {0: result}, {}, settings, writes=True, backward=True
    )
    graph.add(made, before=place)
