"""Fusion of reductions and maps over the same rows, such as softmax and norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import graphs_of
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured.fused import keeps_leading, readings
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import mapped_inputs
from popgraph.passes.structured.analysis.words import views_words
from popgraph.passes.structured.fusion.fuse_elementwise import (
    epilogue_input_moved,
    view_looked_through,
)
from popgraph.passes.structured.fusion.join import is_convex, join, read_elsewhere
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target

Fusable = tile.MapOp | tile.ReduceOp
FUSE = Rewrite(
    "fuse rows",
    "y = reduce x; z = map (x, y)  ->  z = fused { y = reduce x; z = map (x, y) }",
    Proof(unproven="an analysis of each program finds that rows depend on their own rows only"),
)


@dataclass(frozen=True)
class FuseRows(Pass):
    """
    Fuses reductions and maps over the same rows into one kernel: softmax, norms.

    y = reduce x; z = map (x, y)  ->  z = fused { y = reduce x; z = map (x, y) }
    """

    name = "fuse-rows"
    NEEDS = (UNCUT,)
    AFTER = ("assign-layouts",)
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            fuse(graph.block, self.target)


def fuse(block: Block, target: Target) -> None:
    """Fuses each reduction of a block with the operations that share its rows."""
    for reader in list(block.ops):
        if isinstance(reader, Fusable):
            look_through_views(reader)
    # Local memory has one element type: inside the nest, words cannot be a view of bytes.
    members: dict[Operation, Candidate] = {
        op: Candidate(op, position)
        for position, op in enumerate(block.ops)
        if _is_fusable(op) and is_dense(op) and not is_word_view(op)
    }
    for op, member in members.items():
        if isinstance(op, tile.ReduceOp) and op.parent is block:
            group = grow_group(member, members, target)
            if len(group.members) > 1:
                FUSE.fires()
                join(group.operations, group.rows, group.steps())


def _is_fusable(op: Operation | None) -> TypeGuard[Fusable]:
    return isinstance(op, Fusable) and not tile.is_contraction(op)


def look_through_views(reader: tile.MapOp | tile.ReduceOp) -> None:
    """z = f(view x)  ->  z = f(x), as in fuse-elementwise: epilogues may have left views."""
    changed: Operation | None = reader
    while _is_fusable(changed):
        changed = next(view_looked_through(changed, mapped_inputs(changed)), None)
    while tile.is_contraction(changed):
        changed = next(epilogue_input_moved(changed), None)


def is_word_view(op: Fusable) -> bool:
    """Whether a map joins adjacent elements into words, a free view of a stored result."""
    return isinstance(op, tile.MapOp) and views_words(op)


class Candidate:
    """
    An operation with cached facts that growing groups request repeatedly.

    Its maps and sizes do not change. Fusion replaces only operands that then belong to no group, so
    the cache stays valid.
    """

    def __init__(self, op: Fusable, position: int) -> None:
        self.op, self.position = op, position
        self.sizes, self.parallel_rank = op.sizes, op.parallel_rank
        self._read_across: dict[int, list[SSAValue]] = {}
        self._disjoint: dict[int, bool] = {}

    def read_across(self, shared: int) -> list[SSAValue]:
        """The operands that an iteration reads at other rows than its own."""
        if shared not in self._read_across:
            self._read_across[shared] = [
                value
                for value, map_ in readings(self.op)
                if not keeps_leading(map_, self.sizes, shared)
            ]
        return self._read_across[shared]

    def has_disjoint_rows(self, shared: int) -> bool:
        """Whether the rows of all operands are disjoint, so that vectors run along a row."""
        if shared not in self._disjoint:
            self._disjoint[shared] = all(
                are_disjoint(form, self.sizes, shared) for form in forms(self.op)
            )
        return self._disjoint[shared]


def forms(op: Fusable) -> Iterator[Linear]:
    """The memory offset of each operand as a linear form; tables have none."""
    for value, map_ in readings(op):
        if map_ is not None:
            yield offset(tensor(value), map_, op.sizes)


def are_disjoint(form: Linear, sizes: Shape, shared: int) -> bool:
    """Whether the spans of no two rows overlap: columns interleave, pool windows overlap."""
    low, high = form.bounds((*[1] * shared, *sizes[shared:]))
    strides = [form.stride(dim) for dim in range(shared) if sizes[dim] > 1]
    return all(stride is not None and abs(stride) > high - low for stride in strides if stride != 0)


@dataclass(frozen=True)
class Group:
    """Operations with the same `shared` leading loops, in program order."""

    members: tuple[Candidate, ...]
    shared: int
    target: Target

    @property
    def rows(self) -> Shape:
        """The sizes of the shared loops."""
        return self.members[0].sizes[: self.shared]

    @property
    def operations(self) -> list[Fusable]:
        return [member.op for member in self.members]

    @property
    def inside(self) -> list[SSAValue]:
        """The results of the operations, which may become local memory."""
        return [value for op in self.operations for value in op.results]

    def is_valid(self) -> bool:
        """Whether these operations can run row by row, and benefit from it."""
        return (
            self.shared > 0
            and all(member.sizes[: self.shared] == self.rows for member in self.members)
            and all(member.parallel_rank >= self.shared for member in self.members)
            and self._reads_own_rows()
            and all(member.has_disjoint_rows(self.shared) for member in self.members)
            and self._has_many_rows()
            and self._local_bytes() <= _most_local_bytes(self.target)
        )

    def steps(self) -> Shape:
        """
        Rows of an iteration: a power of two. It divides the last shared loop, unless that is long.

        Each operation runs over all of them before the next one starts. The chains of additions of
        several rows then overlap, and lanes of several totals are added together. With AVX-512,
        softmax of 1536 rows of 128 is 1.5x faster, of rows of 21 2.2x.
        """
        tuning = self.target.tuning
        longest = max(
            prod(tensor(value).get_shape()[self.shared :]) * element_bytes(value.type)
            for value in self.inside
        )
        most = min(tuning.most_rows_together, self.target.l1(tuning.rows_together_l1) // longest)
        rows, together = self.rows[-1], 1
        while 2 * together <= most and (
            rows % (2 * together) == 0 or rows // (2 * together) >= tuning.least_row_steps
        ):
            together *= 2
        return (*[1] * (self.shared - 1), together)

    def _reads_own_rows(self) -> bool:
        inside = set(self.inside)
        return all(inside.isdisjoint(member.read_across(self.shared)) for member in self.members)

    def _has_many_rows(self) -> bool:
        row = max(prod(member.sizes[self.shared :]) for member in self.members)
        rows = prod(self.rows)
        tuning = self.target.tuning
        # Rows are vectorized: fewer than 8 elements (`shortest_row`) do not fill a vector of AVX2.
        # Few long rows stay unfused: threads share the rows of a nest, and would idle.
        few = rows < tuning.least_rows and rows * row > tuning.least_chunk_work
        return row >= tuning.shortest_row and not few

    def _local_bytes(self) -> int:
        results = set(read_elsewhere(self.operations))
        return sum(
            prod(tensor(value).get_shape()[self.shared :]) * element_bytes(value.type)
            for value in self.inside
            if value not in results
        )


def grow_group(member: Candidate, members: Mapping[Operation, Candidate], target: Target) -> Group:
    """Grows a group around a reduction greedily, by one neighbour at a time."""
    group: Group | None = Group((member,), member.parallel_rank, target)
    while group is not None:
        largest = group
        found = (with_member(largest, other) for other in neighbours(largest, members))
        group = next((larger for larger in found if larger), None)
    return largest


def neighbours(group: Group, members: Mapping[Operation, Candidate]) -> Iterator[Candidate]:
    """Producers and readers of the members of a group, up to `most_distance` operations away."""
    first = group.members[0].position
    operations = group.operations
    for op in operations:
        users = [use.operation for result in op.results for use in result.uses]
        for other in [*(operand.owner for operand in op.operands), *users]:
            # Within 64 operations (`most_distance`): compile time would be quadratic in the graph.
            if (
                isinstance(other, Fusable)
                and other in members
                and other.parent is op.parent
                and other not in operations
                and abs(members[other].position - first) <= group.target.tuning.most_distance
            ):
                yield members[other]


def is_dense(op: Fusable) -> bool:
    """Whether the results of an operation can be local memory: dense, with elements."""
    return 0 not in op.sizes and not any(layout_of(tensor(value)) for value in op.results)


def with_member(group: Group, other: Candidate) -> Group | None:
    """The group with another member, sharing as many loops as possible."""
    members = tuple(sorted((*group.members, other), key=lambda member: member.position))
    if len(members) > group.target.tuning.most_row_operations:
        return None
    if not is_convex([member.op for member in members]):
        return None
    shared = range(min(group.shared, other.parallel_rank), 0, -1)
    return next(
        (larger for at in shared if (larger := Group(members, at, group.target)).is_valid()), None
    )


def _most_local_bytes(target: Target) -> int:
    """Bytes of local memory for fused rows: a share of L1, or of L2 for a long row."""
    tuning = target.tuning
    # 1/32 of 1 MiB is a row of 8,192 floats: its softmax reads memory once (8192 x 5000: 1.15x).
    long = min(target.l2(tuning.row_buffer_l2), tuning.most_local_bytes // 2)
    return max(target.l1(tuning.row_buffer_l1), long)
