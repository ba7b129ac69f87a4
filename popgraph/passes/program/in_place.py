"""In-place results: a launch overwrites an operand that is dead afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.ir import SSAValue

from popgraph.dialects.tile import LaunchOp
from popgraph.dialects.tile.running import ends_of
from popgraph.passes.program.section import Section, Step
from popgraph.passes.program.storage import Storage, size_of


@dataclass(frozen=True)
class InPlace:
    """Decides which results of a plan take over the memory of an operand."""

    storage: Mapping[SSAValue, Storage]
    variables: Mapping[str, Storage]
    body: Section
    """The section that updates variables."""

    def may_replace(self, old: Storage, new: Storage) -> bool:
        """Whether all reads of `old` precede the launch that writes `new`, or it works in place."""
        if all(time < new.first for time in old.readers):
            return True
        if any(time > new.first for time in old.readers):
            return False
        pairs = self.pairs(self.body.steps[new.first])
        return any(source is old and result.root is new for source, result in pairs)

    def pairs(self, launch: Step) -> Iterator[tuple[Storage, Storage]]:
        """Pairs (operand, result) that may share memory, which no other operand reads."""
        if not isinstance(launch, LaunchOp):
            return
        operands = [self.storage[operand].root for operand in launch.operands]
        numbers = launch.inplace.data
        for i, j in zip(numbers[::2], numbers[1::2], strict=True):
            # The root of a slice is the whole concatenation, larger than the result.
            if self.storage[launch.operands[i]].is_part:
                continue
            if operands.count(operands[i]) == 1 and _same_size(launch, i, j):
                yield operands[i], self.storage[launch.results[j]]

    def replaces(self, old: Storage, new: Storage) -> bool:
        """Whether the launch that computes `new` overwrites all of `old`, which then is dead."""
        if not old.readers or max(old.readers) != new.first or not self.may_replace(old, new):
            return False
        pairs = self.pairs(self.body.steps[new.first])
        whole = [result for source, result in pairs if source is old and result.root is new]
        return any(not result.is_part and not result.start for result in whole)

    def share(self, section: Section) -> None:
        """Results take over the memory of operands whose last reader is the same launch."""
        for time, launch in enumerate(section.steps):
            used: set[Storage] = set()
            for source, result in self.pairs(launch):
                if source in used or result.alias_of is not None or result in used:
                    continue
                if source.space != "arena" or source.last != time or result.first != time:
                    continue
                if not _ends_like(section.steps[source.first], launch):
                    continue
                if result.space == "variable" and not self.may_replace(
                    self.variables[result.label], source
                ):
                    continue
                used |= {source, result}
                _take_over(source, result)


def _ends_like(maker: Step, launch: Step) -> bool:
    """
    Whether the producer of an operand writes no more of it than the launch.

    The shared memory may be an output of the caller, which holds only the sizes of the call.
    """
    if not isinstance(launch, LaunchOp):
        return True
    made = ends_of(maker) if isinstance(maker, LaunchOp) else []
    return {*ends_of(launch)} <= {*made}


def _take_over(source: Storage, result: Storage) -> None:
    """Makes `source` an alias of `result`, which lives from the first write of `source`."""
    source.alias_of = result
    result.first = source.first


def _same_size(launch: LaunchOp, operand: int, result: int) -> bool:
    return size_of(launch.operands[operand].type) == size_of(launch.results[result].type)
