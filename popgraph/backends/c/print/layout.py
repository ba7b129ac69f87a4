"""The table of memory of a program: its slots, and those of the programs that it runs."""

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
from popgraph.dialects.program.control import Looping
from popgraph.dialects.tile import BufferOp, LoopOp, ProgramOp
from popgraph.dialects.tile.program.control import runs_programs
from popgraph.dialects.tile.program.ops import ALIGNMENT, find_program


@dataclass(frozen=True, eq=False)
class Packing:
    """A piece of persistent memory that programs share, see `packings`."""

    op: Operation
    """What fills it."""
    begin: int
    end: int
    key: str = ""
    """Of what it holds."""


class Layout:
    """
    Which memory does a program use, and where in the table does each piece stand?

    The constants of the programs that it runs are in it: whoever calls a program hands it its own
    table, made of pieces of this one. Packings have slots of their own, by their keys; what else
    there is of persistent memory moves together.
    """

    def __init__(
        self, program: ProgramOp, packings: Sequence[Packing] = (), *, is_turn: bool = False
    ) -> None:
        self.program, self.is_turn = program, is_turn
        self.slots: list[Slot] = [THREADS, ARENA, PERSISTENT]
        self._packings = packings
        self._filled: dict[Operation, int] = {}
        self._begins = [packing.begin for packing in packings]
        sizes = ((packing.end - packing.begin) // ALIGNMENT * ALIGNMENT for packing in packings)
        self._moved = [0, *accumulate(sizes)]
        """By how much what stands behind so many packings does so."""
        persistent = program.persistent.value.data - self._moved[-1]
        self._sizes = program.arena.value.data, persistent
        self._checks = program.index_checks
        self._numbers: dict[tuple[str, object], int] = {("arena", ""): 1, ("persistent", ""): 2}
        bodies = (program.body.block, program.prepare.block)
        for prepared, block in zip((False, True), bodies, strict=True):
            for op in block.ops:
                if isinstance(op, BufferOp):
                    self._add(_key(op), _slot(op, prepared))
        self.callees = {
            name: Layout(_neighbour(program, name), is_turn=isinstance(op, LoopOp))
            for name, op in _called(program).items()
        }
        for callee in self.callees.values():
            for key, slot in callee.constants():
                self._add(key, slot)

        for packing in packings:
            self._add(("packing", packing.key), packed(packing.key, packing.end - packing.begin))
            self._filled[packing.op] = self._numbers["packing", packing.key]

    def _add(self, key: tuple[str, object], slot: Slot) -> None:
        """Memory that a step reads stays, though `prepare` of another program reads it, too."""
        number = self._numbers.setdefault(key, len(self.slots))
        if number == len(self.slots):
            self.slots.append(slot)
        elif not slot.prepared:
            self.slots[number] = replace(self.slots[number], prepared=False)

    def constants(self) -> Iterator[tuple[tuple[str, object], Slot]]:
        """The literals in the table, by what they are known by."""
        for key, place in self._numbers.items():
            if key[0] == "constant":
                yield key, self.slots[place]

    def place(self, op: BufferOp) -> tuple[int, int]:
        """The number of a buffer's slot, and the byte in it where the buffer begins."""
        offset = op.offset.value.data
        if op.space.data != "persistent":
            return self._numbers[_key(op)], offset
        before = bisect_right(self._begins, offset)
        if before and offset < self._packings[before - 1].end:
            packing = self._packings[before - 1]
            return self._numbers["packing", packing.key], offset - packing.begin
        return self._numbers[_key(op)], offset - self._moved[before]

    def packing_slot(self, op: Operation) -> int | None:
        """The slot that a call fills, if it is a packing's."""
        return self._filled.get(op)

    def slot_number_of(self, space: str, name: object) -> int:
        """The number of the slot of an input, an output or a constant."""
        return self._numbers[space, name]

    @property
    def turn_slot(self) -> int | None:
        """The slot of the number of the turn, if the program is what a loop runs."""
        (name,) = Looping.input_names(0, 0, 0)
        return self.slot_number_of("input", name) if self.is_turn else None

    @property
    def table(self) -> Table:
        """The memory, apart from the IR that it was read from."""
        return Table(tuple(self.slots), *self._sizes, self._checks, self.program.donated)


def _called(program: ProgramOp) -> dict[str, Operation]:
    """The programs that a program runs, each once, with an operation that does."""
    blocks = (program.prepare.block, program.body.block)
    return {name: op for block in blocks for op in block.ops for name in runs_programs(op)}


def _neighbour(program: ProgramOp, name: str) -> ProgramOp:
    module = program.parent_op()
    assert isinstance(module, ModuleOp), "programs that others run stand beside them"
    return find_program(module, name)


def _key(op: BufferOp) -> tuple[str, object]:
    space = op.space.data
    if space in ("arena", "persistent"):
        return space, ""
    return space, op.literal if space == "constant" else op.label.text


def _slot(op: BufferOp, prepared: bool) -> Slot:
    """The first buffer of a name says what it holds; later ones are views of it."""
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
