"""The table of memory of a program and of the programs that it runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Operation

from popgraph.backends.c.memory.table import (
    ARENA,
    PERSISTENT,
    THREADS,
    Literal,
    Slot,
    Table,
    packed,
)
from popgraph.dialects import element_types
from popgraph.dialects.program.attributes import BlobAttr, DataAttr
from popgraph.dialects.program.control_signatures import Looping
from popgraph.dialects.tile import BufferOp, LoopOp, ProgramOp
from popgraph.dialects.tile.program.ops import ALIGNMENT, find_program
from popgraph.dialects.tile.program.program_control import runs_programs


@dataclass(frozen=True, eq=False)
class Packing:
    """A slice of persistent memory that programs share, see `packings`."""

    op: Operation
    """The call that fills it."""
    begin: int
    end: int
    key: str = ""
    """The digest of its contents."""


class Layout:
    """
    The slots of memory that a program uses, and the position of each buffer in them.

    Constants of callees have slots, too: a caller builds the table of a callee from its own slots.
    Each packing has a slot, found by its key; the rest of persistent memory closes the gaps.
    """

    def __init__(
        self, program: ProgramOp, packings: Sequence[Packing] = (), *, is_loop_body: bool = False
    ) -> None:
        self.program, self.is_loop_body = program, is_loop_body
        # Calls of kernels with chunks read the number of threads from slot 0.
        self.slots: list[Slot] = [THREADS, ARENA, PERSISTENT]
        self._packings = packings
        self._filled: dict[Operation, int] = {}
        self._begins = [packing.begin for packing in packings]
        sizes = ((packing.end - packing.begin) // ALIGNMENT * ALIGNMENT for packing in packings)
        self._shifts = [0, *accumulate(sizes)]
        """Bytes by which persistent memory after the first n packings moves forward."""
        persistent = program.persistent.value.data - self._shifts[-1]
        self._sizes = program.arena.value.data, persistent
        self._checks = program.index_checks
        self._slot_numbers: dict[tuple[str, object], int] = {
            ("arena", ""): 1,
            ("persistent", ""): 2,
        }
        bodies = (program.body.block, program.prepare.block)
        for prepared, block in zip((False, True), bodies, strict=True):
            for op in block.ops:
                if isinstance(op, BufferOp):
                    self._add(_key(op), _slot(op, prepared))
        self.callees = {
            name: Layout(_callee(program, name), is_loop_body=isinstance(op, LoopOp))
            for name, op in _called(program).items()
        }
        for callee in self.callees.values():
            for key, slot in callee.constants():
                self._add(key, slot)

        for packing in packings:
            slot = packed(packing.key, packing.end - packing.begin, self._sources(packing.op))
            self._add(("packing", packing.key), slot)
            self._filled[packing.op] = self._slot_numbers["packing", packing.key]

    def _add(self, key: tuple[str, object], slot: Slot) -> None:
        """Adds a slot; it is not `prepared` (read by `prepare` only) if a step reads it, too."""
        number = self._slot_numbers.setdefault(key, len(self.slots))
        if number == len(self.slots):
            self.slots.append(slot)
        elif not slot.prepared:
            self.slots[number] = replace(self.slots[number], prepared=False)

    def _sources(self, op: Operation) -> tuple[int, ...]:
        """The slots of the constants that a call reads."""
        buffers = [value.owner for value in op.operands if isinstance(value.owner, BufferOp)]
        keys = [_key(buffer) for buffer in buffers if buffer.space.data == "constant"]
        return tuple(self._slot_numbers[key] for key in keys)

    def constants(self) -> Iterator[tuple[tuple[str, object], Slot]]:
        """The slots of constants with their keys."""
        for key, number in self._slot_numbers.items():
            if key[0] == "constant":
                yield key, self.slots[number]

    def locate(self, op: BufferOp) -> tuple[int, int]:
        """The number of the slot of a buffer, and its byte offset there."""
        offset = op.offset.value.data
        if op.space.data != "persistent":
            return self._slot_numbers[_key(op)], offset
        before = bisect_right(self._begins, offset)
        if before and offset < self._packings[before - 1].end:
            packing = self._packings[before - 1]
            return self._slot_numbers["packing", packing.key], offset - packing.begin
        return self._slot_numbers[_key(op)], offset - self._shifts[before]

    def packing_slot(self, op: Operation) -> int | None:
        """The slot of the packing that a call fills; None for any other operation."""
        return self._filled.get(op)

    def slot_number_of(self, space: str, name: object) -> int:
        """The number of the slot of an input, an output or a constant."""
        return self._slot_numbers[space, name]

    @property
    def iteration_slot(self) -> int | None:
        """The slot of the iteration number, if the program is the body of a loop."""
        (name,) = Looping.input_names(0, 0, 0)
        return self.slot_number_of("input", name) if self.is_loop_body else None

    @property
    def table(self) -> Table:
        """The table without references to the IR."""
        return Table(tuple(self.slots), *self._sizes, self._checks, self.program.donated)


def _called(program: ProgramOp) -> dict[str, Operation]:
    """The callees of a program, each with an operation that runs it."""
    blocks = (program.prepare.block, program.body.block)
    return {name: op for block in blocks for op in block.ops for name in runs_programs(op)}


def _callee(program: ProgramOp, name: str) -> ProgramOp:
    module = program.parent_op()
    assert isinstance(module, ModuleOp), "callees are in the same module"
    return find_program(module, name)


def _key(op: BufferOp) -> tuple[str, object]:
    space = op.space.data
    if space in ("arena", "persistent"):
        return space, ""
    return space, op.literal if space == "constant" else op.label.text


def _slot(op: BufferOp, prepared: bool) -> Slot:
    """The slot of the first buffer with a name; later ones are views of it."""
    memory = op.memory.type
    assert isinstance(memory, MemRefType)
    dtype = element_types.from_ir(memory.element_type)
    return Slot(op.space.data, op.label.text, dtype, memory.get_shape(), _literal(op), prepared)


def _literal(op: BufferOp) -> Literal | None:
    literal = op.literal
    if not isinstance(literal, DataAttr | BlobAttr):
        return None
    dtype, shape = element_types.from_ir(literal.type.element_type), literal.type.get_shape()
    if isinstance(literal, DataAttr):
        return Literal(dtype, shape, data=literal.payload.data)
    return Literal(dtype, shape, key=literal.key.text)
