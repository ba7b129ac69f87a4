"""Fusion of a depthwise convolution with the operation before it, a few channels at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import lcm
from types import MappingProxyType

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import graphs_of
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import halo_of, layout_of, physical_shape
from popgraph.dialects.tile.structured.fused import LineBuffer, follows, keeps_leading, region
from popgraph.dialects.tile.structured.ops import indexed_dims
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT
from popgraph.passes.structured.analysis.loops import (
    has_even_strides,
    has_gaps,
    tensor,
)
from popgraph.passes.structured.analysis.size_flow import Ends, SizeFlow
from popgraph.passes.structured.fusion.join import join
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.memo import cached_property
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target

FUSE = Rewrite(
    "fuse channels",
    "m = f x; y = contract m  ->  y = fused steps n { m = f x; y = contract m }",
    Proof(unproven="line buffers keep the rows that later iterations read; fuzz tests them"),
)


@dataclass(frozen=True)
class FuseChannels(Pass):
    """
    Fuses a convolution with the depthwise convolution after it, a few channels at a time.

    m = contract x; y = contract m  ->  y = fused steps n { m = contract x; y = contract m }

    The image between them stays in cache: EfficientNet-Lite0 is 1.10x faster on one thread. With
    several `threads`, only pairs whose work divides evenly among them are fused. A map that
    computes or copies the image of a depthwise convolution along pixels is fused, too.
    """

    name = "fuse-channels"
    TOLERANCE = 1e-5
    NEEDS = (UNCUT,)
    AFTER = ("schedule-contractions",)
    threads: int = 1
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        ending = SizeFlow.of_module(module).loops
        for graph in graphs_of(module):
            for op in list(graph.block.ops):
                if tile.is_contraction(op):
                    found = pair_of(op, self.threads, self.target, ending)
                    if found is not None and found.plan is not None:
                        found.join(found.plan)
                    elif local := _local_image(op, self.target, ending):
                        FUSE.fires()
                        image, shared = local
                        join((image, op), op.sizes[:shared], [1] * shared)


@dataclass(frozen=True)
class FusionPlan:
    """The iterations of a fused pair: `step` channels each, and perhaps a line buffer."""

    step: int
    buffer: LineBuffer | None = None
    splits: int = 1
    """Slices of the rows of a line buffer, which threads run in parallel."""


@dataclass(frozen=True)
class Pair:
    """A contraction and its only reader; each channel of the reader needs one channel of it."""

    first: tile.ReduceOp
    second: tile.ReduceOp
    factor: int
    """The operand of the second contraction that is the result of the first: 0 or 1."""
    threads: int = 1
    target: Target = Target()
    ending: Collection[int] = ()
    """Loops of `first` that end at a size of the call: a line buffer does not slide along them."""

    @property
    def channel_loops(self) -> tuple[int, int]:
        """The loop over channels of each contraction."""
        return channel_loop(self.first), channel_loop(self.second)

    @property
    def channels(self) -> int:
        return self.second.sizes[self.channel_loops[1]]

    @cached_property
    def plan(self) -> FusionPlan | None:
        """The channels of an iteration and the line buffer, if any; None if fusion does not pay."""
        plan = self._whole_images() or self._line_buffer() if self.threads < 2 else self._balanced()
        if plan is None or not self._is_cut_evenly(plan):
            return None
        # With all channels in one iteration, the input is read once, as before.
        near = self.target.l2(self.target.tuning.reread_l2)
        return plan if plan.step == self.channels or self._reread_bytes() <= near else None

    @property
    def _panel_channels(self) -> int:
        """The fewest channels that are whole panels of both contractions."""
        return lcm(_lanes(self.first), _lanes(self.second))

    def _whole_images(self) -> FusionPlan | None:
        """Whole images of as many channels as L1 holds, or of as few channels as possible."""
        target, tuning = self.target, self.target.tuning
        steps = [
            step
            for step in range(self._panel_channels, self.channels, self._panel_channels)
            if self.channels % step == 0
            and self._local_bytes(step) <= target.l2(tuning.channel_image_l2)
        ]
        near = [
            step
            for step in steps
            if self._local_bytes(step) <= target.l1(tuning.channel_image_l1)
            and self.channels // step >= tuning.least_iterations
        ]
        # 512 channels of 7 x 7: 64 at a time, 20 KiB with the halo, are eight iterations.
        best = max(near, default=min(steps, default=0))
        return FusionPlan(best) if best else None

    def _balanced(self) -> FusionPlan | None:
        """A plan that balances threads: rows are divided among them if possible, else channels."""
        buffered, whole = self._line_buffer(small=True), self._whole_images()
        if buffered is not None and buffered.splits >= self.threads:
            return buffered
        if whole is None:
            return None
        count = self.channels // whole.step
        # Three groups of channels on two threads: one computes two of them, 1.33 of the mean.
        slowest = -(-count // self.threads) * self.threads
        return whole if slowest <= self.target.tuning.uneven_channels * count else None

    def _line_buffer(self, *, small: bool = False) -> FusionPlan | None:
        """A plan with a line buffer, for images too large for L2; if `small`, for all images."""
        target, tuning = self.target, self.target.tuning
        step, (between,) = self._panel_channels, self.first.outputs
        whole = target.l2(tuning.channel_image_l2)
        if self.channels % step or (not small and self._local_bytes(step) <= whole):
            return None
        _, map_ = self.second.mapped[self.factor]
        # The outermost axis of size > 1: rows of several images are not contiguous.
        made = next((at for at, size in enumerate(tensor(between).get_shape()) if size > 1), 0)
        read = min(map_.results[made].used_dims(), default=0)
        if made in self.ending:
            return None
        buffer = target.l2(tuning.line_buffer_l2)
        for rows in range(tuning.most_buffered_rows, 0, -1):
            found = LineBuffer.of(self.first, self.second, map_, (made, read), rows)
            if found is not None and self._local_bytes(step, found) <= buffer:
                return FusionPlan(step, found, self._splits(found, self.channels // step))
        return None

    def _splits(self, geometry: LineBuffer, panels: int) -> int:
        """The slices of an image for threads, each with enough rows to amortize the overlap."""
        if self.threads < 2:
            return 1
        tuning = self.target.tuning
        # Two slices both compute the rows of their overlap: one row in 14 at most, or 7 %.
        most = geometry.extents[0] // (tuning.repeated_rows * max(1, geometry.overlap))
        wanted = min(-(-tuning.least_iterations // panels), most)
        return max(
            splits for splits in range(1, max(1, wanted) + 1) if geometry.steps % splits == 0
        )

    def _local_bytes(self, step: int, geometry: LineBuffer | None = None) -> int:
        (between,) = self.first.outputs
        type_ = region(tensor(between), {self.channel_loops[0]: step}, geometry)
        return prod(physical_shape(type_)) * element_bytes(between.type)

    def _is_cut_evenly(self, plan: FusionPlan) -> bool:
        """Whether iterations of the shared loops advance every operand by a constant stride."""
        between = self.second.operands[self.factor], *self.first.outputs
        parts = [{along: plan.step} for along in self.channel_loops]
        for part, row in zip(parts, plan.buffer.loops if plan.buffer else (), strict=False):
            part[row] = 1
        return all(
            has_even_strides([pair for pair in op.mapped if pair[0] not in between], op.sizes, part)
            for op, part in zip((self.first, self.second), parts, strict=True)
        )

    def _reread_bytes(self) -> int:
        """Bytes of the operands that every iteration over channels reads again."""
        return sum(
            prod(physical_shape(tensor(value))) * element_bytes(value.type)
            for value, map_ in self.first.mapped
            if not any(self.channel_loops[0] in result.used_dims() for result in map_.results)
        )

    def join(self, plan: FusionPlan) -> None:
        """Fuses both at the position of the second; views between them are erased."""
        read = self.second.operands[self.factor]
        while isinstance(view := read.owner, tile.ViewOp):
            read = view.source
            view.output.replace_all_uses_with(read)
            Rewriter.erase_op(view)
        FUSE.fires()
        both, buffer, along = (self.first, self.second), plan.buffer, self.channel_loops
        if buffer is None:
            join(both, (self.channels,), (plan.step,), [(loop,) for loop in along])
            return
        join(
            both,
            (self.channels, buffer.extents[1]),
            (plan.step, buffer.rows),
            list(zip(along, buffer.loops, strict=True)),
            plan.splits,
        )


def pair_of(
    second: tile.ReduceOp,
    threads: int,
    target: Target,
    ending: Mapping[Operation, Ends] = MappingProxyType({}),
) -> Pair | None:
    """A contraction and the one before it, if they can be fused channel by channel."""
    if not _is_plain(second):
        return None
    along = channel_loop(second)
    for number, (value, map_) in enumerate(second.mapped[:2]):
        first = _producer(value)
        if (
            first is not None
            and _is_plain(first)
            and first.sizes[channel_loop(first)] == second.sizes[along]
            and follows(map_, [channel_loop(first)], [along], second.sizes)
            and list(second.operands).count(value) == 1
        ):
            return Pair(first, second, number, threads, target, ending.get(first, {}))
    return None


def _local_image(
    op: tile.ReduceOp, target: Target, ending: Mapping[Operation, Ends]
) -> tuple[tile.MapOp, int] | None:
    """
    The map that computes the image of a window along pixels, if each channel can be local.

    The second result is the number of leading loops that both share.
    """
    schedule = op.schedule
    if schedule is None or not schedule.window_panels.data or schedule.n_inner.data:
        return None
    if not _is_plain(op) or layout_of(tensor(op.outputs[0])):
        return None
    for value in (op.lhs, op.rhs):
        image, halo = value.owner, halo_of(tensor(value))
        if (
            isinstance(image, tile.MapOp)
            and value.has_one_use()
            and len(image.outputs) == 1
            and halo is not None
            and halo.part < 0
            and _reads_rows(image)
        ):
            shared = _shared_loops(op, image)
            part = region(tensor(value), dict.fromkeys(range(shared), 1))
            local = prod(physical_shape(part)) * element_bytes(value.type)
            if (
                prod(op.sizes[:shared]) >= target.tuning.least_iterations
                and local <= target.l2(target.tuning.channel_image_l2)
                and all(loop < shared for one in (op, image) for loop in ending.get(one, {}))
            ):
                return image, shared
    return None


def _reads_rows(op: tile.MapOp) -> bool:
    """Whether the operands of a map are contiguous along the rows of its result, or constant."""
    read = zip(op.inputs, op.input_maps, strict=True)
    forms = (offset(tensor(value), map_, op.sizes) for value, map_ in read)
    return all(form.stride(len(op.sizes) - 1) in (0, 1) for form in forms)


def _shared_loops(op: tile.ReduceOp, image: tile.MapOp) -> int:
    """The leading loops of a contraction that read the same index of its image."""
    assert op.schedule is not None
    most = min(op.schedule.m_dim.data, op.schedule.n_dim.data, image.parallel_rank)
    (map_,) = (map_ for value, map_ in op.mapped[:2] if value is image.outputs[0])
    return max(
        shared
        for shared in range(most + 1)
        if op.sizes[:shared] == image.sizes[:shared] and keeps_leading(map_, op.sizes, shared)
    )


def _producer(value: SSAValue) -> tile.ReduceOp | None:
    """The contraction that computes a value for a single reader, through views of the same type."""
    while value.has_one_use():
        owner = value.owner
        if tile.is_contraction(owner):
            # A piece of a concatenation is memory of the whole and cannot be local.
            halo = halo_of(tensor(value))
            return owner if halo is not None and halo.part < 0 else None
        if not isinstance(owner, tile.ViewOp) or owner.source.type != owner.output.type:
            return None
        value = owner.source
    return None


def _is_plain(op: tile.ReduceOp) -> bool:
    """Whether a contraction can be computed for a slice of its channels."""
    return (
        op.schedule is not None
        and not op.uses_loop_numbers
        and not op.schedule.k_outer.data
        and not indexed_dims(op.epilogue.block)
        and len(op.outputs) == 1
        and not has_gaps(op.outputs[0])
        and 0 not in op.sizes
    )


def channel_loop(op: tile.ReduceOp) -> int:
    """The vectorized loop of a contraction."""
    assert op.schedule is not None
    return op.schedule.n_dim.data


def _lanes(op: tile.ReduceOp) -> int:
    assert op.schedule is not None
    return op.schedule.nr
