"""The memory of exported C: a ROM image of constants, and a RAM image."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph.backends.c.build.compiling import library
from popgraph.backends.c.memory.table import Slot, Table
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.module import print_kernels, program_unit
from popgraph.backends.c.print.unit import Kernel, kernel_unit
from popgraph.backends.c.run.executable import CExecutable
from popgraph.backends.c.run.library import load
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.sizes import sizes_of
from popgraph.dialects.tile.program.lifetimes import arena_bytes
from popgraph.dialects.tile.program.ops import find_program
from popgraph.support.array_bytes import memory_of
from popgraph.support.shapes import prod

ALIGNMENT = 64
"""The alignment of tensors in both images: a cache line."""
SMALLEST = 8
"""The alignment of constants on machines without vectors, of any element type."""


def size_of(slot: Slot) -> int:
    """The size of a tensor in bytes."""
    assert slot.dtype is not None
    return prod(slot.shape) * slot.dtype.numpy.itemsize


def _up(size: int, alignment: int = ALIGNMENT) -> int:
    return -(-size // alignment) * alignment


@dataclass(frozen=True)
class Place:
    """A piece of an image, and the slot of the memory table that points to it."""

    number: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class Image:
    """The layout of a program's memory, without inputs and outputs."""

    table: Table
    constants: tuple[Place, ...]
    """The constants in ROM."""
    firsts: tuple[Place, ...]
    """The initial values of variables in ROM, by the variable's slot."""
    rom: list[memoryview]
    """The content of ROM, in parts, which all programs of a model share."""
    written: tuple[Place, ...]
    """The pieces of RAM: variables first, then index checks and scratch memory."""

    @property
    def rom_bytes(self) -> int:
        return sum(part.nbytes for part in self.rom)

    @property
    def ram_bytes(self) -> int:
        return max((_up(place.offset + place.bytes) for place in self.written), default=0)

    @property
    def state_bytes(self) -> int:
        """Bytes of the variables, which are contiguous at the start of RAM."""
        return max((place.offset + place.bytes for place in self.variables), default=0)

    @property
    def variables(self) -> list[Place]:
        """The variables in RAM."""
        return [one for one in self.written if self.table.slots[one.number].space == "variable"]


def images_of(
    modules: Sequence[ModuleOp],
    stores: Sequence[WeightStore],
    names: Sequence[str],
    stateful: Collection[str],
    alignment: int = ALIGNMENT,
) -> list[Image]:
    """
    The images of programs that share ROM and RAM, with the results of `prepare` in ROM.

    Equal constants are stored once. Variables of one name are one piece of RAM if a program in
    `stateful` has them; others are constants. Index checks and scratch memory follow, each at the
    same offset for all programs, which run one at a time.
    """
    planned = [find_program(module, name) for module, name in zip(modules, names, strict=True)]
    # `prepare` has run: its scratch memory, such as a whole weight, is not needed any more.
    tables = [
        replace(Layout(one).table, sizes=sizes_of(module), arena=arena_bytes(one))
        for module, one in zip(modules, planned, strict=True)
    ]
    rom, known, found = _Rom(alignment), set[str](), list[Image]()
    variables, end = _variables(
        [table for table, name in zip(tables, names, strict=True) if name in stateful]
    )
    arena = end + max(sum(_up(size_of(slot)) for _, slot in _checks(one)) for one in tables)
    for module, weights, name, table in zip(modules, stores, names, tables, strict=True):
        constants, firsts = list[Place](), list[Place]()
        for number, slot in enumerate(table.slots):
            content = _content(slot, table, module, weights, name)
            if content is None:
                continue
            if slot.space != "variable" or slot.label not in variables:
                constants.append(Place(number, rom.add(content), content.nbytes))
            elif slot.label not in known and np.frombuffer(content, np.uint8).any():
                # `init` clears the state, so optimizer state takes no ROM.
                firsts.append(Place(number, rom.add(content), content.nbytes))
        known.update(table.named("variable"))
        written = tuple(_written(table, variables, end, arena))
        found.append(Image(table, tuple(constants), tuple(firsts), rom.parts, written))
    return found


@dataclass
class _Rom:
    """The content of ROM, in aligned parts without duplicates."""

    alignment: int
    parts: list[memoryview] = field(default_factory=list)
    _end: int = 0
    _offsets: dict[bytes, int] = field(default_factory=dict)

    def add(self, content: memoryview) -> int:
        """The offset of a part, which is appended unless an equal one exists."""
        digest = sha256(content).digest()
        if digest not in self._offsets:
            self._offsets[digest] = self._end
            padded = _up(content.nbytes, self.alignment)
            self.parts += [content, memoryview(bytes(padded - content.nbytes))]
            self._end += padded
        return self._offsets[digest]


def _content(
    slot: Slot, table: Table, module: ModuleOp, weights: WeightStore, name: str
) -> memoryview | None:
    """The initial content of a slot; None if nothing reads it."""
    if slot.space == "persistent" and table.persistent:
        return prepared(module, weights, name)
    if slot.literal is None or (slot.prepared and slot.space == "constant"):
        return None
    return memory_of(slot.literal.array(weights)).cast("B")


def _variables(tables: Sequence[Table]) -> tuple[dict[str, int], int]:
    """The offset of each variable in RAM, and the end of all."""
    offsets, end = dict[str, int](), 0
    for table in tables:
        for slot in table.slots:
            if slot.space == "variable" and slot.label not in offsets:
                offsets[slot.label] = end
                end += _up(size_of(slot))
    return offsets, end


def _checks(table: Table) -> Iterator[tuple[int, Slot]]:
    """The number and slot of each index check, a hidden output."""
    names = {check.output for check in table.checks}
    for label, number in table.named("output").items():
        if label in names:
            yield number, table.slots[number]


def _written(table: Table, variables: Mapping[str, int], end: int, arena: int) -> Iterator[Place]:
    """The pieces of RAM that a program writes; `end` is that of all variables."""
    for label, number in table.named("variable").items():
        if label in variables:
            yield Place(number, variables[label], size_of(table.slots[number]))
    for number, slot in _checks(table):
        yield Place(number, end, size_of(slot))
        end += _up(size_of(slot))
    for number in table.named("arena").values():
        yield Place(number, arena, table.arena)


def prepared(module: ModuleOp, weights: WeightStore, name: str) -> memoryview:
    """The persistent memory (such as packed weights), computed by `prepare` on this machine."""
    copy = module.clone()
    program = find_program(copy, name)
    _empty(list(program.body.block.ops))  # A copy without a body: only `prepare` runs.
    layout = Layout(program)
    kernels = print_kernels(copy)
    unit = program_unit(program, layout, kernels)
    code = load(library([unit, kernel_unit(called(kernels, unit.text))]), name)
    return memory_of(CExecutable(layout.table, code, weights, 1).persistent).cast("B")


def _empty(operations: Sequence[Operation]) -> None:
    for op in reversed(operations):
        op.detach()
        op.erase(safe_erase=False)


def called(kernels: Sequence[Kernel], text: str) -> list[Kernel]:
    """The kernels that a text calls, without merely declared ones."""
    symbols = set(re.findall(r"\b(kernel_\w+)\((?!\w+ chunk)", text))
    return [kernel for kernel in kernels if kernel.symbol in symbols]
