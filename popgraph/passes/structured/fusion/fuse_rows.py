"""Fusion of reductions and maps over the same rows (softmax, norms)."""

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
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import mapped_inputs
from popgraph.passes.structured.analysis.words import views_words
from popgraph.passes.structured.fusion.fuse_elementwise import view_looked_through
from popgraph.passes.structured.fusion.join import is_convex, join, read_elsewhere
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target

Fusable = tile.MapOp | tile.ReduceOp


@dataclass(frozen=True)
class FuseRows(Pass):
    """
    Softmax, norms and the like become one kernel: what shares its leading loops runs row by row.

    y = reduce x; z = map (x, y)  ->  z = fused { y = reduce x; z = map (x, y) }
    """

    name = "fuse-rows"
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> FuseRows:
        return cls(options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            fuse(graph.block, self.target)


def fuse(block: Block, target: Target) -> None:
    """Fuses all reductions with the operations that share their rows."""
    for reader in list(block.ops):
        if _is_fusable(reader):
            look_through_views(reader)
    members: dict[Operation, Candidate] = {
        op: Candidate(op, position)
        for position, op in enumerate(block.ops)
        if _is_fusable(op) and is_dense(op) and not is_view(op)
    }
    for op, member in members.items():
        if isinstance(op, tile.ReduceOp) and op.parent is block:
            group = grown(member, members, target)
            if len(group.members) > 1:
                join(group.operations, group.rows, group.steps())


def _is_fusable(op: Operation | None) -> TypeGuard[Fusable]:
    return isinstance(op, Fusable) and not tile.is_contraction(op)


def look_through_views(reader: tile.MapOp | tile.ReduceOp) -> None:
    """z = f(view x)  ->  z = f(x), as in fuse-elementwise: epilogues may have left views."""
    changed: Operation | None = reader
    while _is_fusable(changed):
        changed = next(view_looked_through(changed, mapped_inputs(changed)), None)


def is_view(op: Fusable) -> bool:
    """Whether a map costs nothing if it stays a view of a stored result."""
    return isinstance(op, tile.MapOp) and views_words(op)


class Candidate:
    """
    An operation, and what growing groups ask about it again and again.

    Its maps and sizes do not change. Operations fused meanwhile replace operands, which then belong
    to no group.
    """

    def __init__(self, op: Fusable, position: int) -> None:
        self.op, self.position = op, position
        self.sizes, self.parallel_rank = op.sizes, op.parallel_rank
        self._strays: dict[int, list[SSAValue]] = {}
        self._walks: dict[int, bool] = {}

    def strays(self, shared: int) -> list[SSAValue]:
        """The operands that are read elsewhere than at the indices of the shared loops."""
        if shared not in self._strays:
            self._strays[shared] = [
                value
                for value, map_ in readings(self.op)
                if not keeps_leading(map_, self.sizes, shared)
            ]
        return self._strays[shared]

    def walks_along_rows(self, shared: int) -> bool:
        """Whether rows stand apart in memory, so that vectors run along them, not across."""
        if shared not in self._walks:
            self._walks[shared] = all(
                stand_apart(form, self.sizes, shared) for form in forms(self.op)
            )
        return self._walks[shared]


def forms(op: Fusable) -> Iterator[Linear]:
    """Where in memory the operands of an operation stand; tables stand anywhere."""
    for value, map_ in readings(op):
        if map_ is not None:
            yield offset(tensor(value), map_, op.sizes)


def stand_apart(form: Linear, sizes: Shape, shared: int) -> bool:
    """Whether no two rows of an operand overlap."""
    low, high = form.bounds((*[1] * shared, *sizes[shared:]))
    strides = [form.stride(dim) for dim in range(shared) if sizes[dim] > 1]
    return all(stride is not None and abs(stride) > high - low for stride in strides if stride != 0)


@dataclass(frozen=True)
class Group:
    """Operations that begin with the same `shared` loops, in the order of the program."""

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
        """What the group computes."""
        return [value for op in self.operations for value in op.results]

    def is_valid(self) -> bool:
        """Whether these operations can run row by row, and gain by it."""
        return (
            self.shared > 0
            and all(member.sizes[: self.shared] == self.rows for member in self.members)
            and all(member.parallel_rank >= self.shared for member in self.members)
            and self._reads_own_rows()
            and all(member.walks_along_rows(self.shared) for member in self.members)
            and self._has_many_rows()
            and self._local_bytes() <= _most_local_bytes(self.target)
        )

    def steps(self) -> Shape:
        """
        The rows that an iteration takes: a power of two that divides the last shared loop.

        Each operation goes over all of them before the next begins, so that no row waits for its
        own sums, and the lanes of several rows are added up together.
        """
        tuning = self.target.tuning
        longest = max(
            prod(tensor(value).get_shape()[self.shared :]) * element_bytes(value.type)
            for value in self.inside
        )
        most = min(tuning.most_rows_together, self.target.l1(tuning.rows_together_l1) // longest)
        together = 1
        while 2 * together <= most and self.rows[-1] % (2 * together) == 0:
            together *= 2
        return (*[1] * (self.shared - 1), together)

    def _reads_own_rows(self) -> bool:
        inside = set(self.inside)
        return all(inside.isdisjoint(member.strays(self.shared)) for member in self.members)

    def _has_many_rows(self) -> bool:
        row = max(prod(member.sizes[self.shared :]) for member in self.members)
        rows = prod(self.rows)
        tuning = self.target.tuning
        few = rows < tuning.least_rows and rows * row > tuning.least_chunk_work
        return row >= tuning.shortest_row and not few

    def _local_bytes(self) -> int:
        results = set(read_elsewhere(self.operations))
        return sum(
            prod(tensor(value).get_shape()[self.shared :]) * element_bytes(value.type)
            for value in self.inside
            if value not in results
        )


def grown(member: Candidate, members: Mapping[Operation, Candidate], target: Target) -> Group:
    """The largest group around a reduction, found by taking in neighbours one by one."""
    group: Group | None = Group((member,), member.parallel_rank, target)
    while group is not None:
        largest = group
        found = (joined(largest, other) for other in neighbours(largest, members))
        group = next((larger for larger in found if larger), None)
    return largest


def neighbours(group: Group, members: Mapping[Operation, Candidate]) -> Iterator[Candidate]:
    """What computes an operand of a member, or reads a result of one, not far away."""
    first = group.members[0].position
    operations = group.operations
    for op in operations:
        users = [use.operation for result in op.results for use in result.uses]
        for other in [*(operand.owner for operand in op.operands), *users]:
            if (
                isinstance(other, Fusable)
                and other in members
                and other.parent is op.parent
                and other not in operations
                and abs(members[other].position - first) <= group.target.tuning.most_distance
            ):
                yield members[other]


def is_dense(op: Fusable) -> bool:
    """Whether an operation has results that can be local memory."""
    return 0 not in op.sizes and not any(layout_of(tensor(value)) for value in op.results)


def joined(group: Group, other: Candidate) -> Group | None:
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
    """What the local memory of fused rows may take; a long row may leave L1, but not for memory."""
    tuning = target.tuning
    long = min(target.l2(tuning.row_buffer_l2), tuning.most_local_bytes // 2)
    return max(target.l1(tuning.row_buffer_l1), long)
