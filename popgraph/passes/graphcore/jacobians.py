"""The Jacobian of a graph: a loop that computes one of its rows or columns per iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, i64
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects import element_types
from popgraph.dialects.graphcore import (
    CastOp,
    CompareOp,
    IotaOp,
    ReshapeOp,
    SliceOp,
    SubOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.jacobian_products import add_jvp, add_vjp, drop_input
from popgraph.passes.graphcore.training.loop_draft import LoopDraft
from popgraph.support.derivatives import GRADIENT, TANGENT, jacobian_name
from popgraph.support.shapes import prod


def add_jacobian(
    module: ModuleOp, compilation: Compilation, wrt: Sequence[str], outputs: Sequence[str]
) -> None:
    """
    y = f(x)  ->  y, Jacobian___y___x = dy/dx, of the shape of y followed by that of x.

    A loop over unit vectors computes a row (J^T e, reverse mode) or a column (J e, forward mode)
    per iteration, whichever are fewer. Values that do not depend on the unit vector are computed
    once.
    """
    graph = only_graph(module)
    values = {**graph.inputs, **graph.outputs}
    shapes = {name: tuple(shape_of(values[name])) for name in (*wrt, *outputs)}
    kept = [*graph.outputs]
    by_rows = _count(shapes, outputs) <= _count(shapes, wrt)
    add, prefix = (add_vjp, GRADIENT) if by_rows else (add_jvp, TANGENT)
    over, found = (outputs, wrt) if by_rows else (wrt, outputs)
    add(module, compilation, wrt, outputs)
    seeds = [graph.inputs[prefix + name] for name in over]
    made = _over_unit_vectors(graph, seeds, [graph.outputs[prefix + name] for name in found])
    stacked = dict(zip(found, made, strict=True))
    blocks = dict[str, SSAValue]()
    with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
        for output in outputs:
            for name in wrt:
                one, other = (output, name) if by_rows else (name, output)
                first = _count(shapes, over[: over.index(one)])
                rows = _rows(stacked[other], first, prod(shapes[one]))
                if not by_rows:
                    flat = ReshapeOp(rows, shape=(prod(shapes[one]), prod(shapes[other])))
                    rows = TransposeOp(flat, perm=(1, 0))
                block = ReshapeOp(rows, shape=(*shapes[output], *shapes[name]))
                blocks[jacobian_name(output, name)] = block.result
    set_outputs(graph, {name: graph.outputs[name] for name in kept} | blocks)
    EliminateDeadCode().run(compilation, module)
    for name in over:
        drop_input(graph, prefix + name)


def _count(shapes: Mapping[str, Sequence[int]], names: Sequence[str]) -> int:
    """The number of elements of these tensors."""
    return sum(prod(shapes[name]) for name in names)


def _rows(stacked: SSAValue, first: int, count: int) -> Operand:
    """Rows `first` to `first + count` of a tensor."""
    _, *shape = shape_of(stacked)
    starts, steps = [first] + [0] * len(shape), [1] * (1 + len(shape))
    return SliceOp(stacked, starts=starts, sizes=[count, *shape], steps=steps)


def _over_unit_vectors(
    graph: GraphOp, seeds: Sequence[SSAValue], results: Sequence[SSAValue]
) -> list[SSAValue]:
    """The results for every unit vector of the seeds, stacked along a new first axis."""
    draft, known, first = LoopDraft(), dict[SSAValue, SSAValue](), 0
    with ImplicitBuilder(draft.block):
        for seed in seeds:
            known[seed] = _unit(draft.index, first, seed)
            first += prod(shape_of(seed))
    dependent = set(seeds)
    for op in graph.block.ops:
        if not isinstance(op, ReturnOp) and not dependent.isdisjoint(op.operands):
            dependent.update(op.results)
            _bring(draft, known, op.operands)
            draft.block.add_op(op.clone(known))
    _bring(draft, known, results)
    rows = [draft.row(known[result]) for result in results]
    with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
        loop = draft.finish(first, reverse=False, count=None)
    return [loop.stacked[row] for row in rows]


def _bring(draft: LoopDraft, known: dict[SSAValue, SSAValue], values: Iterable[SSAValue]) -> None:
    """Makes values known to the body: copies constants, captures others."""
    for value in values:
        if value not in known and isinstance(value.owner, ConstantOp):
            draft.block.add_op(value.owner.clone(known))
        elif value not in known:
            known[value] = draft.capture(value)


def _unit(index: SSAValue, first: int, like: SSAValue) -> SSAValue:
    """A tensor whose element `index - first`, in row-major order, is 1; the others are 0."""
    numbers = IotaOp(shape=(prod(shape_of(like)),), axis=0, dtype=i64)
    is_one = CompareOp(numbers, SubOp(index, scalar(first, index)), "eq")
    flat = CastOp(is_one, to=element_types.to_ir(dtype_of(like)))
    return ReshapeOp(flat, shape=shape_of(like)).result
