"""`tile.fused`: structured operations that share loops, and the regions of their iterations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.affine import linear
from popgraph.dialects.tile.attributes import (
    LayoutAttr,
    halo_of,
    layout_of,
    physical_shape,
    with_layout,
)
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.dialects.tile.structured.ops import MapOp, YieldOp, yielded
from popgraph.dialects.tile.structured.reduce import ReduceOp, is_contraction
from popgraph.dialects.tile.structured.winograd import TransformTilesOp
from popgraph.support.shapes import Shape, prod

Member = MapOp | ReduceOp | TransformTilesOp
"""Operations that can be fused."""


@irdl_op_definition
class FusedOp(IRDLOperation):
    """
    Structured operations that share loops: they run together for a few indices at a time.

    `domain` holds the sizes of the shared loops, `steps` the indices of each per iteration. `loops`
    lists, for each operation, its loops that are shared; by default the leading ones. The meaning
    is that of the operations in sequence.

    A value that the body computes and does not yield is local: memory holds only the region of it
    that one iteration reads, inferred from the maps of its readers. Along a shared loop the region
    is the indices of the iteration; along all others it is the full extent, with the halo.

    With `splits`, the last shared loop is a sliding window: an iteration reads rows of the local
    value that overlap those of its predecessor. A line buffer holds one window, and an iteration
    computes only the rows that it lacks. The iterations are divided into `splits` equal chunks that
    run in parallel; each first recomputes the overlap with its predecessor.

    A Winograd convolution transforms tiles of images, multiplies them with transformed weights, and
    transforms the products into images: `loops [[0], [1, 2], [0, 1]]` over tiles and channels. An
    operation with fewer shared loops than others runs before the inner ones begin. Its last
    iterations may be shorter than `steps`.
    """

    name = "tile.fused"
    inputs = var_operand_def(base(TensorType))
    domain = prop_def(IntsAttr)
    steps = prop_def(IntsAttr)
    loops = opt_prop_def(ArrayAttr[IntsAttr])
    splits = opt_prop_def(IntegerAttr)
    body = region_def("single_block")
    outputs = var_result_def(TensorType)
    traits = traits_def(IsolatedFromAbove(), Pure(), EndsAtSizes())
    assembly_format = (
        "`ins` `(` $inputs `:` type($inputs) `)` `domain` $domain `steps` $steps "
        "(`loops` $loops^)? (`splits` $splits^)? $body attr-dict `->` type($outputs)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        domain: Sequence[int],
        steps: Sequence[int],
        body: Block,
        types: Sequence[Attribute],
        loops: Sequence[Sequence[int]] | None = None,
        splits: int | None = None,
    ) -> None:
        super().__init__(
            operands=[inputs],
            properties={
                "domain": IntsAttr.of(domain),
                "steps": IntsAttr.of(steps),
                "loops": None if loops is None else ArrayAttr(map(IntsAttr.of, loops)),
                "splits": None if splits is None else IntegerAttr(splits, i64),
            },
            regions=[Region(body)],
            result_types=[types],
        )

    @property
    def sizes(self) -> Shape:
        """The extents of the shared loops."""
        return self.domain.data

    @property
    def members(self) -> list[Member]:
        """The fused operations, in order; the body holds no others."""
        *inner, _ = self.body.block.ops
        found = [op for op in inner if isinstance(op, Member)]
        assert len(found) == len(inner), "verified"
        return found

    @property
    def shared(self) -> list[Shape]:
        """The shared loops of each operation."""
        if self.loops is not None:
            return [loops.data for loops in self.loops]
        return [tuple(range(len(self.sizes)))] * len(self.members)

    @property
    def transforms_tiles(self) -> bool:
        """Whether the operation is a Winograd convolution, over tiles and panels of channels."""
        return isinstance(self.members[-1], TransformTilesOp)

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values in the body that are the results."""
        return yielded(self.body.block)

    @property
    def line_buffer(self) -> LineBuffer | None:
        """The line buffer of the local value along the last shared loop, if it slides."""
        if self.splits is None or len(self.members) != 2:
            return None
        first, second = self.members
        if not is_contraction(first) or not is_contraction(second):
            return None
        maps = [map_ for value, map_ in readings(second) if value is first.results[0]]
        if len(maps) != 1 or maps[0] is None:
            return None
        (*_, made), (*_, read) = self.shared
        return LineBuffer.of(first, second, maps[0], (made, read), self.steps.data[-1])

    def region(self, value: SSAValue, width: int) -> TensorType[Attribute]:
        """The region of a local value for `width` indices of the last shared loop."""
        owner, type_ = value.owner, value.type
        assert isinstance(owner, Operation) and isinstance(type_, TensorType)
        loops = self.shared[self.members.index(owner)]  # type: ignore[arg-type]
        steps = zip(loops, (*self.steps.data[:-1], width), strict=True)
        return region(type_, dict(steps), self.line_buffer)

    def verify_(self) -> None:
        block = self.body.block
        if [argument.type for argument in block.args] != [value.type for value in self.inputs]:
            raise VerifyException("the body must take the inputs")
        if not isinstance(block.last_op, YieldOp):
            raise VerifyException("the body must end with tile.yield")
        yielded = self.yielded
        if [value.type for value in yielded] != [value.type for value in self.outputs]:
            raise VerifyException("the body must yield the results")
        if any(value.owner is block for value in yielded) or len(set(yielded)) != len(yielded):
            raise VerifyException("the body must compute each result, and yield it once")
        *inner, _ = block.ops
        for op in inner:
            if not isinstance(op, Member):
                raise VerifyException(f"{op.name} cannot be fused")
        self._check_steps(len(inner))
        made: dict[SSAValue, Shape] = {}
        for op, loops in zip(self.members, self.shared, strict=True):
            self._check_loops(op, loops)
            self._check_reads(op, loops, made)
            made |= dict.fromkeys(op.results, loops)
        if self.splits is not None:
            self._check_line_buffer()
        if any(isinstance(op, TransformTilesOp) for op in self.members):
            self._check_transforms()

    def _check_steps(self, count: int) -> None:
        rank, steps = len(self.sizes), self.steps.data
        if len(steps) != rank or any(step < 1 for step in steps):
            raise VerifyException("steps must be at least 1, one for each shared loop")
        if self.loops is None:
            if any(step > 1 for step in steps[:-1]):
                raise VerifyException("steps must be 1 for all leading loops except the last")
            return
        listed = [len(loops) for loops in self.loops]
        if len(listed) != count or (not self.transforms_tiles and listed != [rank] * count):
            raise VerifyException(f"every operation must list {rank} shared loops")
        even = all(size % step == 0 for size, step in zip(self.sizes, steps, strict=True))
        if not even and not self.transforms_tiles:
            raise VerifyException("steps must divide the sizes of the shared loops")

    def _check_loops(self, op: Member, loops: Shape) -> None:
        shared = self._in_step[: len(loops)]
        if (
            len(set(loops)) != len(loops)
            or not all(0 <= loop < op.parallel_rank for loop in loops)
            or any(op.sizes[loops[at]] != self.sizes[at] for at in shared)
        ):
            raise VerifyException(f"{op.name} must have the loops of {self.name}")
        if isinstance(op, TransformTilesOp):
            return
        if self.loops is not None and (not is_contraction(op) or len(op.outputs) != 1):
            raise VerifyException(f"{op.name} can only share its leading loops")
        if self.loops is None and any(map(layout_of, self._stored(op))):
            raise VerifyException("results along leading loops must be dense")

    def _stored(self, op: Member) -> Iterator[TensorType[Attribute]]:
        """The types of all results except those of local maps: their memory may have a halo."""
        for value in op.results:
            type_ = value.type
            assert isinstance(type_, TensorType)
            halo = halo_of(type_) if isinstance(op, MapOp) and value not in self.yielded else None
            if halo is None or halo.part >= 0:
                yield type_

    def _check_reads(self, op: Member, loops: Shape, made: dict[SSAValue, Shape]) -> None:
        for value, map_ in readings(op):
            if value not in made:
                continue
            common = self._in_step[: len(made[value])]
            axes = [_axis_of(value, made[value][at]) for at in common]
            if len(common) > len(loops) or not follows(
                map_, axes, [loops[at] for at in common], op.sizes
            ):
                raise VerifyException(f"{map_} reads elements of another iteration")

    @property
    def _in_step(self) -> range:
        """The shared loops along which a region is the indices of the iteration."""
        return range(len(self.sizes) - (self.splits is not None))

    def _check_transforms(self) -> None:
        *before, last = self.members
        product = before[-1] if before else None
        if not (
            self.loops is not None
            and isinstance(last, TransformTilesOp)
            and last.is_into_images
            and is_contraction(product)
            and product.schedule is not None
            and last.x is product.results[0]
            and [value is product.lhs for op in before[:-1] for value in op.results] in ([], [True])
            and all(isinstance(op, TransformTilesOp) for op in before[:-1])
            and self.yielded == tuple(last.results)
        ):
            raise VerifyException("transforms of tiles must be around a scheduled contraction")
        schedule, (taps, _, _, channels) = product.schedule, product.sizes
        # With transforms inside, panels are the inner loop; without, the outer one.
        loops, panel = ([(0,), (1, 2), (0, 1)], 1) if before[:-1] else ([(2, 1), (1, 0)], 0)
        if self.shared != loops or self.steps.data[panel] != schedule.nr:
            raise VerifyException("the contraction must compute one panel of channels at a time")
        panels = -(-product.sizes[2] // schedule.nr)
        weights = product.rhs.type
        assert isinstance(weights, TensorType)
        if physical_shape(weights) != (panels, taps, channels, schedule.nr):
            raise VerifyException("the weights must be stored as [panel, tap, channel, lane]")

    def _check_line_buffer(self) -> None:
        assert self.splits is not None
        buffer = self.line_buffer if self.loops is not None and self.sizes else None
        if buffer is None or buffer.extents[1] != self.sizes[-1]:
            raise VerifyException("the windows of a line buffer must advance by equal steps")
        if self.yielded != tuple(self.members[1].results):
            raise VerifyException("the reader of a line buffer must yield the only results")
        if self.splits.value.data < 1 or buffer.steps % self.splits.value.data:
            raise VerifyException("splits must divide the number of iterations")


@dataclass(frozen=True)
class LineBuffer:
    """
    The regions of a producer contraction that iterations of its reader need, along one loop each.

    Index `y` of the reader's loop reads `span` producer indices from `stride * y + low` on. An
    iteration covers `rows` reader indices.
    """

    loops: tuple[int, int]
    """The loop of the producer, and that of the reader."""
    extents: tuple[int, int]
    """The sizes of these loops."""
    rows: int
    stride: int
    low: int
    span: int

    @staticmethod
    def of(
        first: ReduceOp, second: ReduceOp, map_: AffineMap, loops: Sequence[int], rows: int
    ) -> LineBuffer | None:
        """The line buffer between two contractions, where the second reads the first by `map_`."""
        made, reader = loops
        if not (0 <= made < first.parallel_rank and 0 <= reader < second.parallel_rank):
            return None
        users = [at for at, result in enumerate(map_.results) if reader in result.used_dims()]
        form = linear(map_.results[made], second.sizes)
        others = map_.results[made].used_dims() - {reader}
        stride = form.stride(reader)
        if users != [made] or stride is None or any(dim < second.parallel_rank for dim in others):
            return None
        if prod(first.sizes[:made]) != 1:  # Rows of several images are not consecutive.
            return None
        low, high = form.bounds([1 if d == reader else n for d, n in enumerate(second.sizes)])
        extents = first.sizes[made], second.sizes[reader]
        found = LineBuffer((made, reader), extents, rows, stride, low, high - low + 1)
        return found if found.is_even() else None

    def is_even(self) -> bool:
        """Whether all iterations are equal, except that the last may produce fewer rows."""
        # Windows start in the padding or at row 0 and skip no rows; the last iteration still
        # produces a row.
        return (
            0 < self.rows < self.extents[1]
            and self.extents[1] % self.rows == 0
            and self.stride > 0
            and self.low <= 0
            and self.overlap >= 0
            and self.prologue >= 0
            and self.tail < self.produced
        )

    @property
    def steps(self) -> int:
        """The number of iterations."""
        return self.extents[1] // self.rows

    @property
    def produced(self) -> int:
        """The rows that one iteration produces."""
        return self.rows * self.stride

    @property
    def overlap(self) -> int:
        """The rows that consecutive iterations share."""
        return self.span - self.stride

    @property
    def prologue(self) -> int:
        """The rows that must exist before the first iteration."""
        return self.low + self.overlap

    @property
    def buffer_rows(self) -> int:
        """The rows that one iteration reads."""
        return self.produced + self.overlap

    @property
    def tail(self) -> int:
        """The rows past the end that the last iteration reads."""
        return max(0, self.steps * self.produced + self.prologue - self.extents[0])


def region(
    type_: TensorType[Attribute], steps: Mapping[int, int], buffer: LineBuffer | None = None
) -> TensorType[Attribute]:
    """
    The region of a local value: `steps` indices along these axes, all along others, plus the halo.

    Sliced axes have no halo. Along the producer's loop of a line buffer, it is the
    rows that one iteration reads.
    """
    around, shape = halo_of(type_), list(type_.get_shape())
    assert around is not None, "local values are dense but for a halo"
    low, high = list(around.low), list(around.high)
    for axis, step in steps.items():
        if step < shape[axis]:
            low[axis] = high[axis] = 0
        shape[axis] = step
    if buffer is not None:
        axis = buffer.loops[0]
        shape[axis], low[axis], high[axis] = buffer.buffer_rows, 0, 0
    plain = TensorType(type_.element_type, shape)
    if not any(low) and not any(high):
        return plain
    rows = zip(low, shape, high, strict=True)
    return with_layout(plain, LayoutAttr.moved(low, [sum(row) for row in rows]))


def readings(op: Member) -> Iterator[tuple[SSAValue, AffineMap | None]]:
    """Every operand with its map; None for tables."""
    match op:
        case MapOp():
            yield from zip(op.mapped_inputs, op.input_maps, strict=True)
            yield from ((table, None) for table in op.mapped_tables)
        case ReduceOp():
            maps = [*op.input_maps, *op.epilogue_input_maps, *op.block_input_maps]
            yield from zip(op.operands, maps, strict=True)
        case TransformTilesOp():
            yield op.x, op.source_map
            yield from zip(op.epilogue_inputs, op.epilogue_input_maps, strict=True)


def _axis_of(value: SSAValue, loop: int) -> int:
    """The axis of a local value that a loop of the operation that computes it counts."""
    axis = value.owner.axis_of(loop) if isinstance(value.owner, TransformTilesOp) else loop
    assert axis is not None, "images are results"
    return axis


def follows(
    map_: AffineMap | None, axes: Sequence[int], loops: Sequence[int], sizes: Shape
) -> bool:
    """Whether a map reads, at each index of `loops`, exactly that index along `axes`."""
    if map_ is None or len(map_.results) <= max(axes, default=-1):
        return False
    return all(
        linear(map_.results[axis], sizes) == linear(AffineExpr.dimension(loop), sizes)
        and not any(
            loop in result.used_dims() and sizes[loop] > 1
            for at, result in enumerate(map_.results)
            if at != axis
        )
        for axis, loop in zip(axes, loops, strict=True)
    )


def keeps_leading(map_: AffineMap | None, sizes: Shape, shared: int) -> bool:
    """Whether a map reads, at each index of the leading loops, exactly that index."""
    return follows(map_, range(shared), range(shared), sizes)
