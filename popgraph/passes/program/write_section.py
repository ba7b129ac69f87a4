"""Writes a planned section as `tile.buffer`s and the calls that read and write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i1, i8, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.dialects.program import CallCondOp, CallLoopOp
from popgraph.dialects.tile import BufferOp, CallOp, CondOp, LoopOp, PrepareProgramOp, ProgramOp
from popgraph.dialects.tile.loops.ops import memory_type
from popgraph.passes.program.copies import Copies
from popgraph.passes.program.section import Copy, Section, Step
from popgraph.passes.program.storage import Storage
from popgraph.passes.program.workspace import (
    CallStep,
    Preparation,
    Workspace,
    persistent_sizes,
    scratch_bytes,
)
from popgraph.support.names import hint


class Buffers:
    """The `tile.buffer` operations of a block, without duplicates."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._known: dict[tuple[object, ...], SSAValue] = {}

    def of(self, storage: Storage, type_: Attribute, name: str | None = None) -> SSAValue:
        """
        The buffer of a storage with a type; a constant's is named after its value.

        Arena memory is reused by several values, so its buffers are all named `arena`.
        """
        assert isinstance(type_, MemRefType)
        byte_offset, storage = storage.byte_offset, storage.root
        constant = storage.literal if storage.space == "constant" else None
        key = (storage.space, byte_offset, storage.label, constant, type_)
        if key not in self._known:
            label, literal = storage.label, storage.literal
            op = BufferOp(storage.space, type_, offset=byte_offset, label=label, literal=literal)
            self._block.add_op(op)
            held = name if storage.space == "constant" else None
            op.memory.name_hint = hint(storage.label) or held or storage.space
            self._known[key] = op.memory
        return self._known[key]


def memory_of(element: Attribute, size: int) -> MemRefType[Attribute]:
    """The type of one-dimensional memory of `size` elements."""
    return MemRefType(element, [size])


COUNTER, FLAG = memory_of(i64, 1), memory_of(i1, 1)


@dataclass(frozen=True)
class ControlWriter:
    """Writes the operations that run other programs."""

    buffer: Callable[[Storage, Attribute], SSAValue]
    """The memref of a storage with a type."""
    of: Callable[[SSAValue], SSAValue]
    """The memref of a value."""
    programs: Mapping[str, ProgramOp]

    def preparation(self, step: Preparation) -> PrepareProgramOp:
        """The operation that prepares a program."""
        scratch, persistent = self._memory([step.program], step.workspace)
        return PrepareProgramOp(step.program, scratch, persistent)

    def call(self, step: CallStep) -> CondOp | LoopOp:
        """The operation for a branch or a loop."""
        made = (
            self._loop(step.op, step.workspace)
            if isinstance(step.op, CallLoopOp)
            else self._cond(step.op, step.workspace)
        )
        made.location = step.op.location
        return made

    def _loop(self, op: CallLoopOp, workspace: Workspace) -> LoopOp:
        assert workspace.counter is not None, "a loop has a counter"
        next_go = workspace.next_go
        scratch, persistent = self._memory(op.graphs, workspace)
        (program,) = op.graphs
        return LoopOp(
            program,
            op.turns,
            reverse=op.reverse is not None,
            turn=self.buffer(workspace.counter, COUNTER),
            go=None if op.go is None else self.of(op.go),
            next_go=None if next_go is None else self.buffer(next_go, FLAG),
            limit=None if op.limit is None else self.of(op.limit),
            carried=self._all(op.carried),
            scanned=self._all(op.scanned),
            captured=self._all(op.captured),
            finals=self._all(op.finals),
            spares=[
                self.buffer(spare, memory_type(value))
                for spare, value in zip(workspace.spares, op.finals, strict=True)
            ],
            stacked=self._all(op.stacked),
            scratch=scratch,
            persistent=persistent,
        )

    def _cond(self, op: CallCondOp, workspace: Workspace) -> CondOp:
        memory = self._memory(op.graphs, workspace)
        return CondOp(
            op.graphs,
            self.of(op.predicate),
            self._all(op.captured),
            self._all(op.outputs),
            *memory,
        )

    def _all(self, values: Iterable[SSAValue]) -> list[SSAValue]:
        return [self.of(value) for value in values]

    def _memory(
        self, names: Sequence[str], workspace: Workspace
    ) -> tuple[SSAValue | None, list[SSAValue]]:
        """Scratch memory for the programs, and the persistent memory of each that has any."""
        programs = [self.programs[name] for name in names]
        size = scratch_bytes(programs)
        scratch = workspace.scratch
        made = None if scratch is None else self.buffer(scratch, memory_of(i8, size))
        held = zip(workspace.persistent, persistent_sizes(programs), strict=True)
        return made, [self.buffer(piece, memory_of(i8, size)) for piece, size in held]


@dataclass(frozen=True)
class SectionWriter:
    """Writes sections, from the storage of values and the programs planned before."""

    storage: Mapping[SSAValue, Storage]
    programs: Mapping[str, ProgramOp]
    copies: Copies

    def write(
        self, section: Section, block: Block, declared: Sequence[tuple[Storage, Attribute]]
    ) -> None:
        """The operations of a section; the buffers that the caller sees come first."""
        buffers = Buffers(block)
        for storage, type_ in declared:
            buffers.of(storage, type_)
        before = [self._copy(copy, buffers) for copy in section.before]
        steps = self._steps(section.steps, buffers)
        after = [self._copy(copy, buffers) for copy in section.after]
        block.add_ops([*before, *steps, *after])

    def _steps(self, steps: Sequence[Step], buffers: Buffers) -> list[Operation]:
        memories: dict[SSAValue, SSAValue] = {}

        def of(value: SSAValue) -> SSAValue:
            if value not in memories:
                memories[value] = buffers.of(
                    self.storage[value], memory_type(value), value.name_hint
                )
            return memories[value]

        control = ControlWriter(buffers.of, of, self.programs)

        def written(step: Step) -> Operation:
            match step:
                case Preparation():
                    return control.preparation(step)
                case CallStep():
                    return control.call(step)
            arguments = [of(value) for value in (*step.operands, *step.results)]
            call = CallOp(step.callee.string_value(), arguments, step.chunks)
            call.location = step.location
            return call

        return [written(step) for step in steps]

    def _copy(self, copy: Copy, buffers: Buffers) -> CallOp:
        type_ = memory_type(copy.value)
        memories = [buffers.of(storage, type_) for storage in (copy.source, copy.target)]
        return CallOp(self.copies.function(type_), memories, IntegerAttr(1, i64))
