"""The executable of a program for all sizes up to a bound; construction of executables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from popgraph.backends.base import Executable
from popgraph.backends.c.build.toolchain import find_library
from popgraph.backends.c.cache.program_cache import Prepared, ProgramKey
from popgraph.backends.c.memory.donations import donated
from popgraph.backends.c.memory.table import Table
from popgraph.backends.c.memory.zero_copy import MadeInPlace, Pointers, Ports, ReadInPlace
from popgraph.backends.c.run.executable import Blank, CExecutable
from popgraph.backends.c.run.library import Code, load
from popgraph.backends.interface import check_threads
from popgraph.support.arrays import Array, ArrayStore
from popgraph.support.errors import RunError
from popgraph.support.inputs import as_array, fitted
from popgraph.support.shapes import Shape, text
from popgraph.support.sizes import leading_slices, sizes_in, with_sizes

MOST_KNOWN = 256
"""Limit of cached views, by combination of sizes: creating them takes some 20 us."""


MOST_HELD = 4
"""Largest ratio of an output's allocation to its size; beyond, the output is copied."""


class MadeInFront(MadeInPlace):
    """An output that is the front of new memory for its bound, which programs may write."""

    def __init__(self, own: Array, pointers: Pointers, number: int, shape: Shape) -> None:
        super().__init__(own, pointers, number)
        self._part = tuple(slice(0, size) for size in shape)

    def copy(self) -> Array:
        whole = super().copy()
        made = whole[self._part]
        return made if whole.nbytes <= MOST_HELD * made.nbytes else made.copy()


@dataclass(frozen=True)
class Fronts:
    """The views of inputs' and outputs' memory for some sizes."""

    numbers: Sequence[int]
    """The sizes, in the program's order."""
    ports: Ports
    read: Sequence[ReadInPlace]
    """The zero-copy inputs."""


class SizedExecutable(CExecutable):
    """
    A program whose loops end at sizes of the call.

    Memory is allocated for the bounds, and each run uses leading slices of it. Repeated sizes
    cost no more than in a program for these sizes. Large arrays are zero-copy if the size is their
    outermost axis of more than one element; others are copied row by row.
    """

    def __init__(
        self,
        table: Table,
        code: Code,
        weights: ArrayStore,
        threads: int,
        prepared: Prepared | None = None,
        key: str | None = None,
        blank: Blank | None = None,
    ) -> None:
        super().__init__(table, code, weights, threads, prepared, key, blank)
        self.sizes = table.sizes
        self._numbers = [self._views("input")[size.name] for size in self.sizes]
        for size in self.sizes:
            del self.inputs[size.name]
        slots = [*table.named("input").values(), *table.named("output").values()]
        self._own = [(slot, self._pointers[slot]) for slot in slots]
        """The addresses of this program's own memory for inputs and outputs."""
        self._known: dict[tuple[Shape, ...], Fronts] = {}
        """The leading slices for inputs of these shapes."""
        self._fronts = Fronts((), Ports((), (), ()), ())
        """The leading slices of the last run."""
        self._switch_to(self._fronts_of({size.name: size.bound for size in self.sizes}))

    def serves(self, shapes: Mapping[str, Shape]) -> dict[str, int] | None:
        """The sizes for inputs of these shapes; None if the program does not support them."""
        if any(len(shapes[name]) != len(shape) for name, (_, shape) in self.inputs.items()):
            return None
        numbers = sizes_in(self.sizes, shapes)
        if numbers is None:
            return None
        bounds = {name: shape for name, (_, shape) in self.inputs.items()}
        wanted = with_sizes(bounds, self.sizes, numbers)
        return numbers if all(shapes[name] == wanted[name] for name in wanted) else None

    def _fitted(self, name: str, value: object) -> Array:
        return fitted(name, as_array(name, value), self.inputs[name][0])

    def _suited(
        self, inputs: Mapping[str, Array], ports: Ports
    ) -> tuple[Mapping[str, Array], Ports]:
        shapes = self._shapes(inputs)
        if shapes is None:
            inputs = self.fitted(inputs)
            shapes = tuple([array.shape for array in inputs.values()])
        found = self._known.get(shapes)
        if found is None:
            found = self._fronts_of(self._numbers_of(inputs))
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[shapes] = found
        if found is not self._fronts:
            self._switch_to(found)
        return inputs, found.ports

    def _shapes(self, inputs: Mapping[str, Array]) -> tuple[Shape, ...] | None:
        """The shapes of inputs; None unless they are arrays of the program's element types."""
        ports = self._ports.inputs
        if len(inputs) != len(ports):
            return None
        shapes = []
        for name, dtype, _, _ in ports:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype:
                return None
            shapes.append(array.shape)
        return tuple(shapes)

    def _numbers_of(self, given: Mapping[str, Array]) -> dict[str, int]:
        """The sizes of given inputs; RunError if the program does not support them."""
        numbers = self.serves({name: array.shape for name, array in given.items()})
        if numbers is None:
            bounds = ", ".join(f"{size.name} up to {size.bound}" for size in self.sizes)
            shapes = ", ".join(f"{name!r} of {text(array.shape)}" for name, array in given.items())
            raise RunError(f"this program is for {bounds}, not for inputs {shapes}")
        return numbers

    def _fronts_of(self, numbers: Mapping[str, int]) -> Fronts:
        inputs = {name: view for name, view in self._views("input").items() if name in self.inputs}
        outputs = {name: self._views("output")[name] for name in self.outputs}
        for size in self.sizes:
            inputs = leading_slices(inputs, size.inputs, numbers[size.name])
            outputs = leading_slices(outputs, size.outputs, numbers[size.name])
        read = self._in_place("input", inputs, ReadInPlace)
        made = self._in_place("output", outputs, self._made_in_front)
        order = [numbers[size.name] for size in self.sizes]
        ports = Ports.of(inputs, read, outputs, made)
        return Fronts(order, ports, [*read.values()])

    def _made_in_front(self, view: Array, pointers: Pointers, number: int) -> MadeInPlace:
        own = self._arrays[number]
        assert own is not None, "outputs have memory"
        return MadeInFront(own, pointers, number, view.shape)

    def _switch_to(self, new: Fronts) -> None:
        """Sets the views for the following runs."""
        old = self._fronts
        if old.read or old.ports.made or new.read or new.ports.made:
            for read in old.read:
                read.release()
            for made in (*old.ports.made, *new.ports.made):
                made.release()
            for slot, address in self._own:
                self._pointers[slot] = address
        for memory, number in zip(self._numbers, new.numbers, strict=True):
            memory[...] = number
        self._fronts, self._ports = new, new.ports

    def _unwritten(self) -> tuple[Array, ...]:
        arena, *_ = super()._unwritten()
        return (arena, *self._views("output").values())  # Outputs are copied from these.

    def run_stacked(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        return Executable.run_stacked(self, inputs, count)

    def _donated(self, inputs: Mapping[str, Array], donate: Collection[str]) -> dict[str, Array]:
        """Checks the donated inputs, but uses none: outputs need memory for the bound."""
        donated(self.fitted(inputs), donate, self.table.donations, self.inputs)
        return {}

    @property
    def donations(self) -> Mapping[str, str]:
        return {}


def executable(
    table: Table,
    code: Code,
    weights: ArrayStore,
    threads: int,
    prepared: Prepared | None = None,
    key: str | None = None,
    blank: Blank | None = None,
) -> CExecutable:
    """The executable of a library and its memory table."""
    kind = SizedExecutable if table.sizes else CExecutable
    return kind(table, code, weights, threads, prepared, key, blank)


def load_cached(
    key: ProgramKey, weights: ArrayStore, threads: int = 1, *, is_told: bool = False
) -> CExecutable | None:
    """
    Loads the executable that `build` saved under this key, without passes or compiler.

    Repeats its notices unless the user `is_told` already.
    """
    check_threads(threads)
    saved = key.load(weights)
    path = None if saved is None else find_library(saved.library)
    if saved is None or path is None:
        return None
    code = load(path, saved.name)
    for notice in () if is_told else saved.notices:
        notice.give()
    return executable(saved.table, code, weights, threads, saved.prepared, key.digest)
