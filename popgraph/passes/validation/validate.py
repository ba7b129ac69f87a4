"""Translation validation of one compilation: proves what a pass made of a module."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from popgraph.dialects.locations import source
from popgraph.dialects.program import graphs_of
from popgraph.dialects.program.calls import calls_in
from popgraph.dialects.program.sizes import sizes_of
from popgraph.dialects.tile import CallOp, ProgramOp, RunsPrograms
from popgraph.passes.validation.certificate import Certificate
from popgraph.passes.validation.graphs import GraphProof, Kernels, fail
from popgraph.passes.validation.kernel_accesses import Accesses
from popgraph.passes.validation.plans import PlanProof, Range, range_of, sections_of
from popgraph.passes.validation.runs import NOTHING, Runs
from popgraph.passes.validation.sites import Setting
from popgraph.support.errors import ValidationError
from popgraph.support.sizes import Size

EACH = 64
"""Most combinations of sizes that are proven one by one; of more, only the ends are."""


def validate(name: str, before: ModuleOp, after: ModuleOp) -> Certificate | None:
    """
    Proves the result of a pass; None if it neither plans memory nor changes calls.

    ValidationError if an access is wrong.
    """
    programs = {op.sym_name.data: op for op in after.ops if isinstance(op, ProgramOp)}
    if not programs:
        return None
    earlier = {op.sym_name.data: op for op in before.ops if isinstance(op, ProgramOp)}
    if earlier:
        return _prove_calls(name, before, after)
    return _prove_plan(name, before, programs)


def _prove_plan(name: str, before: ModuleOp, programs: Mapping[str, ProgramOp]) -> Certificate:
    """Proves launches on tensors, and calls on planned memory."""
    kernels, sizes = Kernels(before), sizes_of(before)
    cases, words = cases_of(sizes)
    graphs = [*graphs_of(before)]
    called = {name for graph in graphs for name in calls_in(graph)}
    for graph in graphs:
        whole: GraphProof | None = None
        for numbers in cases:
            called_here = graph.sym_name.data in called
            proof = GraphProof(graph, kernels, sizes, numbers, called_here, whole)
            if whole is not None:
                proof.shared = whole.shared
            proof.prove()
            # If calls for smaller sizes access a subset of the elements, no byte is overwritten
            # that is not overwritten at the bounds.
            if whole is None or not proof.is_monotonic:
                _prove_memory(proof, programs)
            whole = whole or proof
    made = Certificate(name, words, [*_named(kernels)])
    for program in programs.values():
        made.buffers += _buffers(program)
        made.checks += [f"{one.what} of {one.place}" for one in program.index_checks]
    return made


def _prove_memory(proof: GraphProof, programs: Mapping[str, ProgramOp]) -> None:
    """Proves the plan of a graph, also for inputs that callers donate."""
    program = programs[proof.graph.sym_name.data]
    PlanProof(program, proof, programs).prove()
    if program.donated:
        taken = {output: given for given, output in program.donated.items()}
        PlanProof(program, proof, programs, taken).prove()


def cases_of(sizes: Sequence[Size]) -> tuple[list[dict[int, int]], str]:
    """The values of sizes to prove, and words for them."""
    if not sizes:
        return [{}], ""
    ranges = [range(size.least, size.bound + 1) for size in sizes]
    count = 1
    for one in ranges:
        count *= len(one)
    shown = ", ".join(map(str, sizes))
    if count <= EACH:
        chosen, words = itertools.product(*ranges), f"each of {shown} ({count} cases)"
    else:
        ends = [sorted({one[0], one[-1]}) for one in ranges]
        chosen = itertools.product(*ends)
        words = f"the ends of {shown}; sizes in between are not proven"
    # The bounds first: there, a mistake of all sizes has the simplest message.
    return [dict(enumerate(numbers)) for numbers in reversed([*chosen])], words


def _named(kernels: Kernels) -> Iterator[tuple[str, Accesses]]:
    """The proofs of all kernels, those of several sizes together."""
    found = dict[str, Accesses]()
    for (name, setting), one in kernels.proven.items():
        words = name
        if setting.chunks != 1:
            words += f", {setting.chunks} chunks"
        if setting.shared:
            words += ", in place"
        if setting.numbers:
            words += ", each size"
        found.setdefault(words, one).assumed.update(one.assumed)
    return iter(found.items())


def _buffers(program: ProgramOp) -> Iterator[str]:
    """A line for the program, and for each of its calls."""
    arena, persistent = program.arena.value.data, program.persistent.value.data
    yield f"- program {program.sym_name.data}: arena {arena} bytes, persistent {persistent} bytes"
    for title, block in zip(("prepare", "step"), sections_of(program), strict=True):
        for number, op in enumerate(_calls(block)):
            label = op.label
            places = ", ".join(str(range_of(value)) for value in op.arguments)
            yield f"  {title} {number}: {label}({places})"


def _calls(block: Block) -> list[CallOp | RunsPrograms]:
    return [op for op in block.ops if isinstance(op, CallOp | RunsPrograms)]


# Calls that a pass replaced by calls of parts


def _prove_calls(name: str, before: ModuleOp, after: ModuleOp) -> Certificate | None:
    """Proves that calls of parts of kernels access the same memory as the calls before."""
    programs = [[op for op in one.ops if isinstance(op, ProgramOp)] for one in (before, after)]
    sides = [
        [_calls(block) for program in side for block in sections_of(program)] for side in programs
    ]
    if [[_signature(op) for op in block] for block in sides[0]] == [
        [_signature(op) for op in block] for block in sides[1]
    ]:
        return None
    sizes = sizes_of(before)
    cases, words = cases_of(sizes)
    kernels = [Kernels(before), Kernels(after)]
    for numbers in cases:
        held = {size.name: numbers[at] for at, size in enumerate(sizes)}
        for old, new in zip(*sides, strict=True):
            _CallsProof(kernels[0], kernels[1], held).prove(old, new)
    made = Certificate(name, words, [*_named(kernels[1])], promises=_PROMISES)
    for program in programs[1]:
        made.buffers += _buffers(program)
    return made


_PROMISES = (
    "calls of parts write the same elements as the calls that they replace",
    "no part reads an operand's element that an earlier part has overwritten",
    "all other calls are unchanged",
)


def _unmatched(op: Operation) -> ValidationError:
    return ValidationError("a call has no counterpart before the pass", source(op.location))


def _signature(op: CallOp | RunsPrograms) -> object:
    return op.name, op.label, [range_of(value) for value in op.arguments]


@dataclass(frozen=True)
class _CallsProof:
    """The proof for the calls of one section."""

    whole: Kernels
    parts: Kernels
    sizes: Mapping[str, int]
    """The values of inputs that hold sizes."""

    def prove(
        self, old: Sequence[CallOp | RunsPrograms], new: Sequence[CallOp | RunsPrograms]
    ) -> None:
        ends = list[tuple[int, Iterator[int]]]()
        """For each call so far, the first new call, and the ways to end its parts."""
        failure: ValidationError | None = None
        start = 0
        while True:
            if len(ends) == len(old):
                if start == len(new):
                    return
                failure = failure or _unmatched(new[start])
            elif len(ends) < len(old):
                ends.append((start, self._ends(old[len(ends)], new, start)))
            # If two calls in a row are split, the first end found may be too early.
            while ends:
                try:
                    found = next(ends[-1][1], None)
                except ValidationError as error:
                    failure, found = failure or error, None
                if found is not None:
                    start = found
                    break
                ends.pop()
            else:
                raise failure or _unmatched(old[0])

    def _ends(
        self, op: CallOp | RunsPrograms, new: Sequence[CallOp | RunsPrograms], start: int
    ) -> Iterator[int]:
        """The positions after calls that do the same as `op`; ValidationError if there is none."""
        if start < len(new) and _signature(op) == _signature(new[start]):
            yield start + 1
            return
        if not isinstance(op, CallOp):
            fail(f"the pass changed {op.label}", op)
        reads, writes = self._touched(self.whole, op)
        made = dict[Range, Runs]()
        for at, part in enumerate(new[start:], start):
            if not isinstance(part, CallOp) or part.label in self.whole.functions:
                break
            self._add_part(op, part, reads, writes, made)
            if made == writes:
                yield at + 1
        fail(f"parts of {op.label} do not write all that it writes", op)

    def _add_part(
        self,
        op: CallOp,
        part: CallOp,
        reads: Mapping[Range, Runs],
        writes: Mapping[Range, Runs],
        made: dict[Range, Runs],
    ) -> None:
        """Adds the writes of a part of `op` to those of earlier parts, `made`."""
        own_reads, own_writes = self._touched(self.parts, part)
        for place, elements in own_reads.items():
            late = elements & made.get(place, NOTHING) & reads.get(place, NOTHING)
            if late:
                fail(
                    f"element {late.first} of {place} is read by {part.label} after an earlier "
                    f"part of {op.label} overwrites it",
                    op,
                )
        for place, elements in own_writes.items():
            if wrong := elements - writes.get(place, NOTHING):
                fail(
                    f"element {wrong.first} of {place} is written by {part.label}, but not by "
                    f"{op.label}",
                    op,
                )
            made[place] = made.get(place, NOTHING) | elements

    def _touched(self, kernels: Kernels, op: CallOp) -> tuple[dict[Range, Runs], dict[Range, Runs]]:
        """The elements that a call reads and may write, by memory."""
        ranges = [range_of(value) for value in op.arguments]
        numbers = {
            at: self.sizes[str(one.space[1])]
            for at, one in enumerate(ranges)
            if one.space[0] == "input" and one.space[1] in self.sizes
        }
        shared = frozenset(
            (i, j) for j in range(len(ranges)) for i in range(j) if ranges[i] == ranges[j]
        )
        setting = Setting(op.chunks.value.data, frozenset(numbers.items()), shared)
        found = kernels.accesses(op.callee.string_value(), setting, list(op.arguments), op)
        reads, writes = dict[Range, Runs](), dict[Range, Runs]()
        for held, sets in ((found.reads, reads), (found.may_write, writes)):
            for number, elements in held.items():
                place = ranges[number]
                sets[place] = sets.get(place, NOTHING) | elements
        return reads, writes
