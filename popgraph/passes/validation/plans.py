"""Proves a plan of memory: every call finds the values that its launch reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from xdsl.dialects import memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import ConstantOp, PrepareOp, VariableOp
from popgraph.dialects.program.calls import CallCondOp, CallLoopOp
from popgraph.dialects.tile import (
    BufferOp,
    CallOp,
    CondOp,
    LaunchOp,
    LoopOp,
    PrepareProgramOp,
    ProgramOp,
    RunsPrograms,
)
from popgraph.dialects.tile.loops.soundness import called
from popgraph.passes.validation.contents import (
    NO_CONTENTS,
    Contents,
    Held,
    Owner,
    owner_of,
    size_of,
    wrong,
)
from popgraph.passes.validation.graphs import GraphProof, element_of, fail, name_of
from popgraph.passes.validation.kernel_accesses import Accesses
from popgraph.passes.validation.runs import NOTHING, Runs
from popgraph.support.shapes import prod

Space: TypeAlias = tuple[str, object]
"""One memory: the name of a space, with a label, or a literal for constants."""


@dataclass(frozen=True)
class Range:
    """The bytes of a buffer."""

    space: Space
    start: int
    size: int
    element: int
    """The bytes of an element."""

    def __str__(self) -> str:
        kind, label = self.space
        name = f" {label}" if isinstance(label, str) and label else ""
        return f"{kind}{name} {self.start}..{self.end - 1}"

    @property
    def end(self) -> int:
        return self.start + self.size

    def overlaps(self, other: Range) -> bool:
        """Whether both have a byte in common."""
        return self.space == other.space and self.start < other.end and other.start < self.end

    def bytes_of(self, elements: Runs) -> Runs:
        """The bytes of some elements, from the start of the memory."""
        return elements.scaled(self.element).shifted(self.start)


def range_of(value: SSAValue) -> Range:
    """The bytes of a memref of a program."""
    op = value.owner
    assert isinstance(op, BufferOp) and isinstance(value.type, MemRefType)
    space = op.space.data
    label: object = op.label.text if space in ("input", "output", "variable") else ""
    if space == "constant":
        label = op.literal
    element = element_bytes(value.type)
    size = prod(value.type.get_shape()) * element
    return Range((space, label), op.offset.value.data, size, element)


def sections_of(program: ProgramOp) -> tuple[Block, Block]:
    """`prepare` and `body`."""
    return program.prepare.block, program.body.block


@dataclass
class PlanProof:
    """The proof that a program computes the values of a graph in memory."""

    program: ProgramOp
    proof: GraphProof
    """The proof of the graph that was planned."""
    programs: Mapping[str, ProgramOp]
    donated: Mapping[str, str] = field(default_factory=dict)
    """The outputs that share the memory of an input: {output: input}."""
    _memories: dict[Space, Held] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._prepared = False
        self.graph, self.kernels = self.proof.graph, self.proof.kernels
        self._contents = Contents(self.proof.written)

    def prove(self) -> None:
        """Raises ValidationError unless every call finds the values that its launch reads."""
        self._place_given()
        prepare, body = sections_of(self.program)
        steps = [
            inner
            for op in self.graph.block.ops
            if isinstance(op, PrepareOp)
            for inner in op.body.block.ops
        ]
        self._section(prepare, steps)
        self._memories.pop(("arena", ""), None)  # Between runs, others may use it.
        self._prepared = True
        self._section(body, list(self.graph.block.ops))
        self._check_results()

    def _place_given(self) -> None:
        """Places inputs and variables, which the caller provides, and constants."""
        for name, value in self.graph.inputs.items():
            self._memories["input", name] = self._contents.of(value)
        for op in self.graph.walk():
            if isinstance(op, ConstantOp | VariableOp):
                space: Space = (
                    ("constant", op.literal)
                    if isinstance(op, ConstantOp)
                    else ("variable", op.variable.text)
                )
                self._memories[space] = self._contents.of(op.result)

    def _space(self, space: Space) -> Space:
        """The memory itself; a donated input is that of an output."""
        kind, label = space
        if kind == "output" and label in self.donated:
            return "input", self.donated[str(label)]
        return space

    def _held(self, place: Range) -> Held:
        """The contents of a buffer, from its first byte."""
        held = self._memories.get(self._space(place.space), NO_CONTENTS)
        return held.within(place.start, place.end).shifted(-place.start)

    def _section(self, block: Block, steps: Sequence[Operation]) -> None:
        """Follows the calls of a section, beside the launches of the graph."""
        waiting = (op for op in steps if isinstance(op, LaunchOp | CallCondOp | CallLoopOp))
        for op in block.ops:
            match op:
                case CallOp() if op.callee.string_value() not in self.kernels.functions:
                    self._copy(op)
                case CallOp():
                    self._call(op, self._next(waiting, op))
                case PrepareProgramOp():
                    self._prepare_program(op)
                case CondOp():
                    self._cond(op, self._next(waiting, op))
                case LoopOp():
                    self._loop(op, self._next(waiting, op))
        for left in waiting:
            fail("a launch has no call in the program", left)

    def _next(self, waiting: Iterator[Operation], op: Operation) -> Operation:
        found = next(waiting, None)
        kinds = {CallOp: LaunchOp, CondOp: CallCondOp, LoopOp: CallLoopOp}
        if not isinstance(found, kinds[type(op)]):
            fail("a call of the program has no launch in the graph", op)
        assert found is not None
        return found

    # Calls of kernels

    def _call(self, op: CallOp, launch: Operation) -> None:
        assert isinstance(launch, LaunchOp)
        name, chunks = launch.callee.string_value(), launch.chunks.value.data
        values = [*launch.operands, *launch.results]
        if (op.callee.string_value(), op.chunks.value.data, len(op.arguments)) != (
            name, chunks, len(values),
        ):  # fmt: skip
            fail(f"a call of {op.callee.string_value()} is not that of its launch", launch)
        ranges = [self._placed(value, argument, launch) for value, argument in zip(
            values, op.arguments, strict=True)]  # fmt: skip
        inputs = len(launch.operands)
        shared = self.proof.shared[launch] = frozenset(
            (i, j)
            for j in range(inputs, len(values))
            for i in range(inputs)
            if ranges[i] == ranges[j] and ranges[i].size
        )
        setting = self.proof.setting(launch)
        found = self.kernels.accesses(name, setting, values, launch)
        for number, value in enumerate(launch.operands):
            self._find(value, ranges[number], found.reads.get(number, NOTHING), launch)
        self._check_overlaps(launch, ranges, found, shared)
        # A kernel that copies an operand before it changes some elements copies nothing in place:
        # the other elements of the result are those of the operand.
        whole = found
        if shared:
            setting = replace(setting, shared=frozenset())
            whole = self.kernels.accesses(name, setting, values, launch)
        for operand, result in shared:
            kept = whole.may_write.get(result, NOTHING) - found.may_write.get(result, NOTHING)
            self._find(values[operand], ranges[operand], kept, launch)
        for number, value in enumerate(launch.results, inputs):
            runs = whole.may_write.get(number, NOTHING).scaled(ranges[number].element)
            self._write(ranges[number], runs, self._own(value, runs), launch)

    def _own(self, value: SSAValue, runs: Runs) -> Held:
        return Held.of(runs, self._contents.number(owner_of(value)))

    def _placed(self, value: SSAValue, argument: SSAValue, op: Operation) -> Range:
        found = range_of(argument)
        kind = found.space[0]
        limit = {
            "arena": self.program.arena.value.data,
            "persistent": self.program.persistent.value.data,
        }.get(kind)
        if found.size != size_of(value):
            fail(f"{name_of(value)} of {size_of(value)} bytes has a buffer of {found.size}", op)
        if found.start < 0 or (limit is not None and found.end > limit):
            fail(f"the buffer of {name_of(value)} exceeds its {kind} of {limit} bytes", op)
        return found

    def _find(self, value: SSAValue, place: Range, elements: Runs, op: Operation) -> None:
        """Raises ValidationError unless memory holds these elements of a value."""
        if not elements:
            return
        runs, owners = wrong(self._contents.of(value), self._held(place))
        lost = runs & elements.scaled(place.element)
        if not lost:
            return
        what = f"{element_of(value, lost.first // place.element)} of {name_of(value)}"
        kind, label = place.space
        memory = f"{kind} {label!r}" if label and kind != "constant" else kind
        where = f"byte {place.start + lost.first} of {memory}"
        number = int(owners[np.searchsorted(runs.starts, lost.first, side="right") - 1])
        if number < 0:
            fail(f"{what} is read before anything is written", op, where)
        other = _shown(self._contents.owner(number))
        fail(f"{what} is read, but its memory holds {other} by then", op, where)

    def _check_overlaps(
        self,
        launch: LaunchOp,
        ranges: Sequence[Range],
        found: Accesses,
        shared: frozenset[tuple[int, int]],
    ) -> None:
        """Results share no byte with each other, and with operands only in place."""
        inputs = len(launch.operands)
        values = [*launch.operands, *launch.results]
        for j in range(inputs, len(values)):
            written = ranges[j].bytes_of(found.may_write.get(j, NOTHING))
            for i in range(j):
                if (i, j) in shared or not ranges[i].overlaps(ranges[j]):
                    continue
                touched = (found.reads if i < inputs else found.may_write).get(i, NOTHING)
                both = ranges[i].bytes_of(touched) & written
                if both:
                    element = (both.first - ranges[i].start) // ranges[i].element
                    what = f"{element_of(values[i], element)} of {name_of(values[i])}"
                    fail(f"{what} shares memory with the result {name_of(values[j])}", launch)

    def _write(self, place: Range, runs: Runs, new: Held, op: Operation) -> None:
        """Replaces bytes of a buffer; `runs` and `new` count from its first one."""
        kind = place.space[0]
        if runs and (kind in ("input", "constant") or (kind == "persistent" and self._prepared)):
            fail(f"a call writes to {kind} memory", op)
        space = self._space(place.space)
        held = self._memories.get(space, NO_CONTENTS)
        moved = new.shifted(place.start)
        self._memories[space] = held.overwritten(runs.shifted(place.start), moved)

    def _fill(self, value: SSAValue, owner: Owner, op: Operation) -> None:
        """Replaces a whole buffer by the bytes of an owner."""
        place = range_of(value)
        runs = Runs.of(0, place.size)
        self._write(place, runs, Held.of(runs, self._contents.number(owner)), op)

    def _copy(self, op: CallOp) -> None:
        """A copy, which `plan-memory` inserts, moves contents as they are."""
        source, target = map(range_of, op.arguments)
        if source.size != target.size or not is_copy(op):
            fail(f"{op.callee.string_value()} does not copy", op)
        if source.overlaps(target):
            fail("the source and the target of a copy overlap", op)
        self._write(target, Runs.of(0, target.size), self._held(source), op)

    # Branches and loops

    def _prepare_program(self, op: PrepareProgramOp) -> None:
        self._disjoint(op, op)
        self._check_workspace(op)
        name = op.program.string_value()
        self._clobber(op.group("scratch"), op, "scratch")
        for value in op.persistent:
            self._fill(value, ("prepared", name), op)

    def _cond(self, op: CondOp, call: Operation) -> None:
        assert isinstance(call, CallCondOp)
        pairs = zip([call.predicate, *call.captured], [*op.predicate, *op.captured], strict=True)
        self._operands(pairs, call)
        self._disjoint(op, call)
        self._check_workspace(op)
        self._clobber(op.group("scratch"), call, "scratch")
        self._results(zip(call.outputs, op.outputs, strict=True), call)

    def _loop(self, op: LoopOp, call: Operation) -> None:
        assert isinstance(call, CallLoopOp)
        for name in ("go", "limit"):
            value, held = getattr(call, name), op.group(name)
            self._operands([(value, held[0])] if value is not None else [], call)
        for name in ("carried", "scanned", "captured"):
            self._operands(zip(getattr(call, name), op.group(name), strict=True), call)
        self._disjoint(op, call)
        self._check_workspace(op)
        for name in ("turn", "next_go", "spares", "scratch"):
            self._clobber(op.group(name), call, name)
        self._results(zip(call.finals, op.finals, strict=True), call)
        self._results(zip(call.stacked, op.stacked, strict=True), call)

    def _operands(
        self,
        pairs: Sequence[tuple[SSAValue, SSAValue]] | zip[tuple[SSAValue, SSAValue]],
        op: Operation,
    ) -> None:
        for value, argument in pairs:
            place = self._placed(value, argument, op)
            self._find(value, place, Runs.of(0, place.size // place.element), op)

    def _results(self, pairs: zip[tuple[SSAValue, SSAValue]], op: Operation) -> None:
        for value, argument in pairs:
            place = self._placed(value, argument, op)
            runs = Runs.of(0, place.size)
            self._write(place, runs, self._own(value, runs), op)

    def _clobber(self, values: Sequence[SSAValue], op: Operation, name: str) -> None:
        for value in values:
            self._fill(value, (f"the {name} memory", "of a call"), op)

    def _disjoint(self, op: RunsPrograms, where: Operation) -> None:
        """Memory that a program writes overlaps none of its other memory."""
        ranges = [range_of(value) for value in op.operands]
        for j in sorted(op.written):
            for i, other in enumerate(ranges):
                if i != j and ranges[j].overlaps(other):
                    fail(
                        f"memory that {op.name} writes overlaps other memory of it: bytes "
                        f"{ranges[j].start} and {other.start} of {other.space[0]}",
                        where,
                    )

    def _check_workspace(self, op: RunsPrograms) -> None:
        """The scratch and the persistent memory are as large as each program needs."""
        called = [self.programs[name] for name in op.programs]
        scratch = sum(range_of(value).size for value in op.group("scratch"))
        held = iter(op.group("persistent"))
        for program in called:
            if program.arena.value.data > scratch:
                fail(
                    f"{op.label} needs {program.arena.value.data} bytes of scratch memory, "
                    f"and gets {scratch}",
                    op,
                )
            needed = program.persistent.value.data
            if not needed:
                continue
            place = range_of(next(held))
            if place.size < needed:
                fail(f"{op.label} needs {needed} persistent bytes, and gets {place.size}", op)
            if isinstance(op, PrepareProgramOp):
                continue
            owner = self._contents.number(("prepared", program.sym_name.data))
            if wrong(Held.of(Runs.of(0, place.size), owner), self._held(place))[0]:
                fail(f"the persistent memory of {program.sym_name.data} is not prepared", op)

    def _check_results(self) -> None:
        """Outputs and variables hold their values at the end; inputs are unchanged."""
        ends = [(("output", name), value) for name, value in self.graph.outputs.items()]
        updated = {op.variable.text: op.value for op in self.graph.updates()}
        ends += [(("variable", name), value) for name, value in updated.items()]
        for op in self.graph.walk():
            if isinstance(op, VariableOp) and op.variable.text not in updated:
                ends.append((("variable", op.variable.text), op.result))
        for space, value in ends:
            width = element_bytes(value.type)
            place = Range(space, 0, size_of(value), width)
            runs, owners = wrong(self._contents.of(value), self._held(place))
            if runs:
                what = f"{element_of(value, runs.first // width)} of {space[0]} {space[1]!r}"
                other = _shown(self._contents.owner(int(owners[0]))) if owners[0] >= 0 else ""
                fail(
                    f"{what} holds {other or 'nothing'} instead of {name_of(value)}",
                    self.graph.return_op,
                )


def is_copy(op: CallOp) -> bool:
    """Whether a call runs a kernel that only copies its first memory to its second."""
    kernel = called(op, op.callee)
    if kernel is None:
        return False
    block = kernel.body.block
    first = block.first_op
    return (
        isinstance(first, memref.CopyOp)
        and first.source is block.args[1]
        and first.destination is block.args[2]
        and first.next_op is block.last_op
    )


def _shown(owner: Owner) -> str:
    if isinstance(owner, SSAValue):
        return name_of(owner)
    if isinstance(owner, tuple) and isinstance(owner[1], Attribute):
        return "a constant"
    return " ".join(map(str, owner)) if isinstance(owner, tuple) else str(owner)
