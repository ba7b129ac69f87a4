"""Loop collapsing and splitting: gives contractions the loops that schedules refer to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import IntsAttr
from popgraph.dialects.program.interned import tensor_type, whole
from popgraph.dialects.tile.affine import selection, simplified, with_dims
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured.ops import maps_attribute
from popgraph.dialects.value_types import set_type
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT
from popgraph.passes.structured.analysis.constants import Constants
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.size_flow import SizeFlow
from popgraph.passes.structured.schedule.reduction_order import (
    LEAST_BLOCK,
    Order,
    sliding_order,
)
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target, Tuning


@dataclass(frozen=True)
class SettleLoops(Pass):
    """
    Collapse contiguous loops of contractions, and split large matrix-vector products into strips.

    y[h, w, n] = sum k: x[h, w, k] * w[k, n]  ->  y[p, n] = sum k: x[p, k] * w[k, n]

    y[n] = sum k: x[k] * w[k, n]  ->  y[p, n] = sum k: x[k] * w[k, p, n]

    The former only when both loops are contiguous in every operand and result. The latter only
    when `w` is a constant that L2 cannot keep (`streamed_l2`), which is then read as several
    streams, and sums have no blocks. Operands and results become views. Schedules and
    `contraction_text` number the resulting loops.
    """

    name = "settle-loops"
    NEEDS = (UNCUT,)
    BEFORE = ("schedule-contractions",)
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        constants, flow = Constants(), SizeFlow.of_module(module)
        for op in list(module.walk()):
            if tile.is_contraction(op) and op.schedule is None:
                running = flow.loops.get(op, {})
                settle_loops(op, constants.factors(op), self.target, running)
            constants.note(op)


def settle_loops(
    op: tile.ReduceOp, fixed: tuple[bool, bool], target: Target, running: Iterable[int] = ()
) -> None:
    """
    Collapses and splits the loops of one contraction.

    `fixed` states which operands are constants; `running` loops end at a size of the call.
    """
    if op.looks_up_factors:
        return
    now = ContractionLoops.of(op, running)
    streamed = [
        is_fixed and _comes_from_memory(value, target)
        for is_fixed, value in zip(fixed, (op.lhs, op.rhs), strict=True)
    ]
    settled = collapse_loops(now)
    # Four streams of 768 x 3072 bytes, summed in pairs, are 1.1 times as slow as one (Zen 5, AVX2).
    if op.block is None:
        settled = split_gemv(settled, streamed, target.tuning)
    if settled.sizes != now.sizes:
        set_loops(op, settled)
    order = sliding_order(op, target) if target.portable and op.block is None else None
    # A first layer of three channels with the window inside takes 0.55 of the time.
    if order is None or order.sizes[-1] < LEAST_BLOCK:
        return
    if order.without_single_steps != Order.of(op).without_single_steps:
        op.properties["domain"] = IntsAttr.of(order.sizes)
        op.properties["maps"] = maps_attribute(order.maps)


def _comes_from_memory(value: SSAValue, target: Target) -> bool:
    """Whether L2 is too small to keep an operand from one run to the next."""
    # With least-recently-used replacement, twice L2 leaves nothing for the next run.
    size = prod(tensor(value).get_shape()) * element_bytes(value.type)
    return size >= target.l2(target.tuning.streamed_l2)


# The loops of a contraction


@dataclass(frozen=True)
class ContractionLoops:
    """
    The loops of a contraction with the shapes and index maps of its operands and results.

    Operands come first, then results.
    """

    sizes: Shape
    parallel: int
    """Number of loops over results; the rest are reductions."""
    blocked: int
    """Number of loops outside of blocks of terms: `parallel` without blocks."""
    shapes: tuple[Shape, ...]
    maps: tuple[AffineMap, ...]
    laid_out: tuple[bool, ...]
    """Whether each operand or result has a layout, and so keeps its shape."""
    has_fixed_results: bool
    """Whether a result has a layout, which fixes the loops over results, even of size 1."""
    running: frozenset[int] = frozenset()
    """Loops that end at a size of the call."""

    @staticmethod
    def of(op: tile.ReduceOp, running: Iterable[int] = ()) -> ContractionLoops:
        values, maps = zip(*op.mapped, strict=True)
        types = [tensor(value) for value in values]
        return ContractionLoops(
            op.sizes,
            op.parallel_rank,
            op.blocked_rank,
            tuple(type_.get_shape() for type_ in types),
            tuple(maps),
            tuple(layout_of(type_) is not None for type_ in types),
            any(layout_of(tensor(value)) is not None for value in op.outputs),
            frozenset(running),
        )


def set_loops(op: tile.ReduceOp, new: ContractionLoops) -> None:
    """Sets the loops of a contraction, through views of its operands and results."""
    inputs, joined = len(op.operands), len(op.block_inputs)
    for number, value in enumerate(op.operands):
        if tensor(value).get_shape() != new.shapes[number]:
            view = tile.ViewOp(value, new.shapes[number])
            _insert(view, op, InsertPoint.before(op))
            op.operands[number] = view.output
    op.properties["domain"] = IntsAttr.of(new.sizes)
    op.properties["parallel"] = whole(new.parallel)
    op.properties["maps"] = maps_attribute(new.maps[:2])
    op.properties["epilogue_maps"] = maps_attribute(new.maps[2 : inputs - joined])
    if op.block is not None:
        op.properties["block_maps"] = maps_attribute(new.maps[inputs - joined : inputs])
        op.properties["block_loops"] = whole(new.blocked - new.parallel)
    shape = new.sizes[: new.parallel]
    for result in reversed(op.outputs):
        if tensor(result).get_shape() != shape:
            _reshape_result(op, result, shape)


def _reshape_result(op: tile.ReduceOp, result: OpResult, shape: Shape) -> None:
    """Changes the shape of a result; its readers get a view with the old shape."""
    type_, readers = tensor(result), tuple(result.uses)
    assert layout_of(type_) is None, "a result with a layout keeps its loops"
    view = tile.ViewOp(result, type_.get_shape())
    _insert(view, op, InsertPoint.after(op))
    view.output.name_hint, result.name_hint = result.name_hint, None
    for use in readers:
        use.operation.operands[use.index] = view.output
    set_type(result, tensor_type(type_.element_type, shape))


def _insert(view: tile.ViewOp, op: Operation, at: InsertPoint) -> None:
    view.location = op.location
    Rewriter.insert_op(view, at)


# Collapsing


class Operand:
    """The shape and index map of an operand while loops are collapsed."""

    def __init__(self, shape: Shape, map_: AffineMap, sizes: Shape, is_laid_out: bool) -> None:
        self.shape, self.is_laid_out = shape, is_laid_out
        self.results = list(simplified(map_, sizes[: map_.num_dims]).results)

    def pair(self, dim: int, sizes: Shape) -> int | None:
        """
        The first of two adjacent axes that loops `dim` and `dim + 1` cover completely.

        -1 if the operand uses neither loop; None if they cannot be collapsed.
        """
        # A laid-out operand keeps its axes: its layout is a map from these.
        users = [
            at for at, result in enumerate(self.results) if {dim, dim + 1} & result.used_dims()
        ]
        if not users:
            return -1
        first = users[0]
        alone = users == [first, first + 1] and not self.is_laid_out
        if not alone or [_dim(self.results[at]) for at in users] != [dim, dim + 1]:
            return None
        return first if self.shape[first : first + 2] == sizes[dim : dim + 2] else None

    def join(self, dim: int, at: int, rank: int) -> None:
        """Joins loop `dim` of `rank` with the next one, and the axes that they cover."""
        if at >= 0:
            size = self.shape[at] * self.shape[at + 1]
            self.shape = (*self.shape[:at], size, *self.shape[at + 2 :])
            del self.results[at + 1]
        renumbered = [AffineExpr.dimension(old if old <= dim else old - 1) for old in range(rank)]
        self.results = [result.replace_dims_and_symbols(renumbered, ()) for result in self.results]


def _dim(result: AffineExpr) -> int | None:
    return result.position if isinstance(result, AffineDimExpr) else None


@lru_cache(maxsize=1 << 10)
def collapse_loops(loops: ContractionLoops) -> ContractionLoops:
    """
    Joins adjacent loops that are contiguous in every operand and result.

    A 1x1 convolution over 56 rows of 56 pixels becomes a product over 3136 pixels.
    """
    # Cached, because most contractions of a network have a few forms. One long loop fills blocks
    # better than two short ones: the 49 pixels of a 7x7 image are 13 + 12 + 12 + 12 rows.
    sizes, parallel, blocked, running = loops.sizes, loops.parallel, loops.blocked, loops.running
    ranks = [map_.num_dims for map_ in loops.maps]
    forms = zip(loops.shapes, loops.maps, loops.laid_out, strict=True)
    operands = [Operand(shape, map_, sizes, fixed) for shape, map_, fixed in forms]
    dim = parallel if loops.has_fixed_results else 0
    while dim + 1 < len(sizes):
        axes = [operand.pair(dim, sizes) for operand in operands]
        # A loop over results and a reduction stay two, as do a loop over blocks and one in a block;
        # a size of the call ends an outermost loop.
        if dim + 1 in (parallel, blocked) or dim + 1 in running or None in axes:
            dim += 1
            continue
        for operand, at in zip(operands, axes, strict=True):
            assert at is not None
            operand.join(dim, at, len(sizes))
        sizes = (*sizes[:dim], sizes[dim] * sizes[dim + 1], *sizes[dim + 2 :])
        parallel -= dim + 1 < parallel
        blocked -= dim + 1 < blocked
        ranks = [rank - (dim + 1 < rank) for rank in ranks]
        running = frozenset(at - (at > dim) for at in running)
    if sizes == loops.sizes:
        return loops
    return replace(
        loops,
        sizes=sizes,
        parallel=parallel,
        blocked=blocked,
        running=running,
        shapes=tuple(operand.shape for operand in operands),
        maps=tuple(
            AffineMap(rank, 0, tuple(operand.results))
            for rank, operand in zip(ranks, operands, strict=True)
        ),
    )


# Splitting


def split_gemv(
    loops: ContractionLoops, streamed: Sequence[bool], tuning: Tuning
) -> ContractionLoops:
    """
    Splits the only wide loop of a matrix-vector product into `gemv_strips` strips.

    y[n] = sum k: x[k] * w[k, n]  ->  y[p, n] = sum k: x[k] * w[k, p, n]

    With p as rows and n vectorized, a register tile reads one panel of each strip. Only when an
    operand that depends on n is `streamed` from memory.
    """
    # Zen 3: four streams are 1.5 times as fast as one, eight hardly faster.
    dim = _only_wide_loop(loops)
    if dim is None or any(loops.laid_out):
        return loops
    extent, strips = loops.sizes[dim], tuning.gemv_strips
    # Short strips would read padding: 28 % of it for 100 results and vectors of AVX2.
    if extent % strips or extent < strips * tuning.least_strip_results:
        return loops
    factors = zip(streamed, loops.maps[:2], strict=True)
    if not any(is_streamed and dim in map_.used_dims() for is_streamed, map_ in factors):
        return loops
    split = [
        _split(shape, map_, dim, extent, strips)
        for shape, map_ in zip(loops.shapes, loops.maps, strict=True)
    ]
    found = [each for each in split if each is not None]
    if len(found) < len(split):
        return loops
    shapes, maps = zip(*found, strict=True)
    sizes = (*loops.sizes[:dim], strips, extent // strips, *loops.sizes[dim + 1 :])
    more = loops.parallel + 1, loops.blocked + 1
    return replace(loops, sizes=sizes, parallel=more[0], blocked=more[1], shapes=shapes, maps=maps)


def _only_wide_loop(loops: ContractionLoops) -> int | None:
    """The only loop over results with more than one step, if there is only one."""
    wide = [dim for dim in range(loops.parallel) if loops.sizes[dim] > 1]
    return wide[0] if len(wide) == 1 else None


def _split(
    shape: Shape, map_: AffineMap, dim: int, extent: int, strips: int
) -> tuple[Shape, AffineMap] | None:
    """Shape and map of an operand after loop `dim` is split; None if `dim` is not an index."""
    later = [AffineExpr.dimension(old + (old > dim)) for old in range(map_.num_dims)]
    results = list(with_dims(map_, later, map_.num_dims + 1).results)
    users = [at for at, result in enumerate(map_.results) if dim in result.used_dims()]
    if users:
        at = users[0]
        alone = len(users) == 1 and isinstance(map_.results[at], AffineDimExpr)
        if not alone or shape[at] != extent:
            return None
        shape = (*shape[:at], strips, extent // strips, *shape[at + 1 :])
        results[at : at + 1] = selection([dim, dim + 1]).results
    return shape, AffineMap(map_.num_dims + 1, 0, tuple(results))
