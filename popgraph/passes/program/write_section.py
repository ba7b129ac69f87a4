"""Writes a planned section as `tile.buffer`s and the calls that read and write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp
from popgraph.dialects.tile.loops.ops import memory_type
from popgraph.passes.program.control_steps import ControlWriter
from popgraph.passes.program.copies import Copies
from popgraph.passes.program.section import Copy, Section, Step
from popgraph.passes.program.storage import Storage
from popgraph.passes.program.workspace import CallStep, Preparation
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
        places = [buffers.of(storage, type_) for storage in (copy.source, copy.target)]
        return CallOp(self.copies.function(type_), places, IntegerAttr(1, i64))
