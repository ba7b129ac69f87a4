"""The memory of exported C: a ROM image of constants, and a RAM image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    rom: tuple[memoryview, ...]
    """The content of ROM, in parts."""
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


def image_of(
    module: ModuleOp,
    weights: WeightStore,
    name: str,
    *,
    own_state: bool = True,
    alignment: int = ALIGNMENT,
) -> Image:
    """
    The images of a program, with the results of `prepare` in ROM, and aligned constants.

    Variables that begin at zero need no ROM, unless another program has the state.
    """
    program = find_program(module, name)
    # `prepare` has run: its scratch memory, such as a whole weight, is not needed any more.
    arena = arena_bytes(program)
    table = replace(Layout(program).table, sizes=sizes_of(module), arena=arena)
    rom, constants, firsts, end = list[memoryview](), list[Place](), list[Place](), 0
    for number, slot in enumerate(table.slots):
        content = _content(slot, table, module, weights, name)
        is_zero = own_state and slot.space == "variable" and not np.any(content)
        if content is not None and not is_zero:
            place = Place(number, end, content.nbytes)
            (firsts if slot.space == "variable" else constants).append(place)
            padding = _up(content.nbytes, alignment) - content.nbytes
            rom += [content, memoryview(bytes(padding))]
            end += content.nbytes + padding
    written = tuple(_written(table))
    return Image(table, tuple(constants), tuple(firsts), tuple(rom), written)


def shared(images: Sequence[Image]) -> list[Image]:
    """
    The images with one ROM, in which equal constants are stored once, and with the first's state.

    Variables of the others are those of the first by name; without such, they are constants.
    """
    rom, offsets, end = list[memoryview](), dict[bytes, int](), 0
    first, moved = images[0], []
    state = {first.table.slots[one.number].label: one.offset for one in first.variables}
    for image in images:
        constants, firsts = list[Place](), list[Place]()
        # Contents alternate with their padding, in the order of their offsets.
        places = sorted((*image.constants, *image.firsts), key=lambda place: place.offset)
        for place, part in zip(places, image.rom[::2], strict=True):
            slot = image.table.slots[place.number]
            is_variable = slot.space == "variable"
            if is_variable and image is not first and slot.label in state:
                continue
            digest = sha256(part).digest()
            if digest not in offsets:
                padding = memoryview(bytes(_up(place.bytes) - place.bytes))
                offsets[digest] = end
                rom += [part, padding]
                end += _up(place.bytes)
            kept = firsts if is_variable and image is first else constants
            kept.append(replace(place, offset=offsets[digest]))
        written = image.written if image is first else tuple(_beside(first, state, image))
        moved.append(
            replace(image, constants=tuple(constants), firsts=tuple(firsts), written=written)
        )
    return [replace(one, rom=tuple(rom)) for one in moved]


def _beside(first: Image, state: Mapping[str, int], image: Image) -> Iterator[Place]:
    """The RAM of an image: its variables in the state of the first one, the rest after it."""
    moved = _up(first.state_bytes) - _up(image.state_bytes)
    for place in image.written:
        label = image.table.slots[place.number].label
        if place not in image.variables:
            yield replace(place, offset=place.offset + moved)
        elif label in state:
            yield replace(place, offset=state[label])


def _content(
    slot: Slot, table: Table, module: ModuleOp, weights: WeightStore, name: str
) -> memoryview | None:
    """The initial content of a slot; None if nothing reads it."""
    if slot.space == "persistent" and table.persistent:
        return prepared(module, weights, name)
    if slot.literal is None or (slot.prepared and slot.space == "constant"):
        return None
    return memory_of(slot.literal.array(weights)).cast("B")


def _written(table: Table) -> Iterator[Place]:
    checks, end = {check.output for check in table.checks}, 0
    for wanted in ("variable", "output", "arena"):
        for number, slot in enumerate(table.slots):
            if slot.space == wanted and (wanted != "output" or slot.label in checks):
                size = table.arena if wanted == "arena" else size_of(slot)
                yield Place(number, end, size)
                end += _up(size)


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
