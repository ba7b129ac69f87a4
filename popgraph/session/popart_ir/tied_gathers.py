"""Patterns of embeddings whose table is also the weight of a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.names import GRADIENT
from popgraph.dialects.onnx.annotations import SERIALIZED, SERIALIZED_FACTOR
from popgraph.session.popart_ir.expression import added
from popgraph.session.popart_ir.graph import TIED_GRADIENT, Context, Kind, Op, OpGraph, words
from popgraph.session.popart_ir.matmuls import NO_PASS

TIED = "PopartTiedGather"
_VIEWS = words("Transpose Reshape ReshapeGrad Slice SliceInplace Detach Identity")
_WHOLE = ("", "none", "output_channels")
"""The ways in which a product of a table may be cut."""


def tied_gather(graph: OpGraph, op: Op) -> bool:
    """
    Gather(w, i) -> PopartTiedGather(Detach(w), i); in parts of w as the product is.

    Only along the first axis, and when a MatMul reads w, too, one of them transposed.
    """
    if op.type != "Gather" or op.integers_or("axis", 0) != 0:
        return False
    root = _root(graph, op.input(0))
    product = next((one for one in _readers(graph, root) if one.type == "MatMul"), None)
    if product is None or graph.kind(root) not in (Kind.VARIABLE, Kind.CONSTANT):
        return False
    cut, count = (
        str(product.attributes.get(SERIALIZED) or ""),
        product.integers_or(SERIALIZED_FACTOR, 1),
    )
    if count > 1 and cut not in _WHOLE:
        return False
    other = graph.producer(product.input(1))
    table = other.input(0) if other and other.type == "Reshape" else product.input(1)
    if _is_transposed(graph, op.input(0)) == _is_transposed(graph, table):
        return False
    product.attributes[NO_PASS] = True
    _detach(graph, op)
    if count > 1 and cut == "output_channels":
        _gather_parts(graph, op, count)
    else:
        op.type = TIED
    return True


def _detach(graph: OpGraph, op: Op) -> None:
    data = op.input(0)
    detached = graph.add_tensor(f"{data}/detached", graph.infos[data])
    settings = op.settings.renamed(f"{_name(op)}/TiedGatherDetach")
    graph.add(Op("Detach", {0: data}, {0: detached}, settings=settings), before=op)
    graph.connect(op, 0, detached)


def _gather_parts(graph: OpGraph, op: Op, count: int) -> None:
    """Gathers of slices of a table, each of which knows only its own rows, added up."""
    data, indices, result = op.input(0), op.input(1), op.output
    info, places = graph.infos[data], graph.infos[indices]
    size, name = info.shape()[0] // count, _name(op)
    total = ""
    graph.forget(op)
    for number in range(count):
        own = f"{name}/{number}"
        part = graph.add_tensor(
            f"{own}/slice:0", TensorInfo(info.data_type(), [size, *info.shape()[1:]])
        )
        bounds: dict[str, object] = {"starts": [number * size], "ends": [(number + 1) * size]}
        _append(graph, op, "Slice", [data], part, f"{own}/slice", bounds | {"axes": [0]})
        first = graph.constant(f"{own}/{indices}_sub_const", float(number * size), places)
        graph.infos[first] = TensorInfo(places.data_type(), [1])
        moved = graph.add_tensor(f"{own}/sub:0", places)
        _append(graph, op, "Sub", [indices, first], moved, f"{own}/sub")
        rows = graph.add_tensor(f"{own}:0", graph.infos[result])
        _append(graph, op, TIED, [part, moved], rows, own, dict(op.attributes))
        if number:
            last = number == count - 1
            both = result if last else graph.add_tensor(f"{result}_tmp{number}", graph.infos[rows])
            _append(graph, op, "Add", [total, rows], both, f"{own}/add")
            graph.tie(rows, both)
        total = both if number else rows


def _append(
    graph: OpGraph,
    op: Op,
    type_: str,
    inputs: list[str],
    output: str,
    name: str,
    attributes: dict[str, object] | None = None,
) -> None:
    place = min((graph.ops.index(one) for one in graph.consumers(op.output)), default=None)
    following = None if place is None else graph.ops[place]
    settings = op.settings.renamed(name)
    made = Op(type_, dict(enumerate(inputs)), {0: output}, dict(attributes or {}), settings)
    graph.add(made, before=following)


def _name(op: Op) -> str:
    return op.settings.name or str(op.number)


def _is_transposed(graph: OpGraph, id: str) -> bool:
    before = graph.producer(id)
    return before is not None and before.type in ("Transpose", "TransposeInplace")


def _root(graph: OpGraph, id: str) -> str:
    """What a tensor is a view of."""
    before = graph.producer(id)
    while before is not None and len(before.inputs) == 1:
        id = before.input(0)
        before = graph.producer(id)
    return id


def _readers(graph: OpGraph, id: str) -> Iterator[Op]:
    """What reads a tensor, or a view of it."""
    for user in graph.consumers(id):
        yield user
        if user.type in _VIEWS:
            yield from _readers(graph, user.output)


def accumulate_sparsely(graph: OpGraph) -> None:
    """
    PopartTiedGatherGrad(g, i) -> PopartSparseAccumulate: rows g are added to what sums gradients.

    Only where the gradients of the product are added up over micro-batches.
    """
    for op in [op for op in graph.ops if op.type == TIED_GRADIENT]:
        gather = _gather_of(graph, op)
        readers = list(_readers(graph, _root(graph, gather.input(0))))
        gathers = sorted((one for one in readers if one.type == TIED), key=_name)
        sums = _sums(graph, readers)
        if len(sums) == len(gathers):
            number = gathers.index(gather)
            _add_rows(graph, op, gather, sums[number], number)


def _gather_of(graph: OpGraph, op: Op) -> Op:
    alike = [one for one in graph.consumers(op.input(1)) if one.type == TIED]
    named = [one for one in alike if GRADIENT + one.input(0) == op.output]
    return (named or alike)[0]


def _sums(graph: OpGraph, readers: list[Op]) -> list[Op]:
    """What adds up the gradients of which a table, or its parts, are updated."""
    found: dict[Op, None] = {}
    for op in readers:
        if op.writes and op.settings.after_batches:
            before = graph.producer(op.input(1)) if 1 in op.inputs else None
            while before is not None and not _is_sum(before):
                before = graph.producer(before.input(min(before.inputs))) if before.inputs else None
            if before is not None:
                found[before] = None
    return sorted(found, key=lambda one: one.input(0))


def _is_sum(op: Op) -> bool:
    return op.type == "Accumulate" and op.settings.context is Context.NORMAL


def _add_rows(graph: OpGraph, op: Op, gather: Op, dense: Op, number: int) -> None:
    state = dense.input(0)
    if _reads_transposed(graph, gather):
        info = graph.infos[state]
        turned = TensorInfo(info.data_type(), info.shape()[::-1])
        state = added(graph, op, "TransposeInplace", [state], turned, {"perm": [1, 0]})
    inputs = {0: state, 1: op.input(0), 3: op.input(1), 4: gather.input(0)}
    if 2 in dense.inputs:
        inputs[2] = dense.input(2)
    name = f"_tiedAccumulate/{number}"
    output = graph.add_tensor(f"{name}:0", graph.infos[state])
    made = Op(
        "PopartSparseAccumulate",
        inputs,
        {0: output},
        dict(dense.attributes),
        replace(op.settings, name=name),
        writes=True,
        backward=True,
    )
    graph.add(made, before=op)
    graph.remove(op)


def _reads_transposed(graph: OpGraph, gather: Op) -> bool:
    id = gather.input(0)
    before = graph.producer(id)
    while before is not None and before.type in ("Slice", "SliceInplace", "Detach"):
        id = before.input(0)
        before = graph.producer(id)
    return _is_transposed(graph, id)
