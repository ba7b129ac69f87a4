"""The executable of a program for every size up to a bound, and the choice between both kinds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from popgraph.backends.base import Executable
from popgraph.backends.c.build.toolchain import find_library
from popgraph.backends.c.cache.program_cache import Prepared, ProgramKey
from popgraph.backends.c.memory.donations import donated
from popgraph.backends.c.memory.table import Table
from popgraph.backends.c.memory.zero_copy import MadeInPlace, ReadInPlace
from popgraph.backends.c.run.exchanges import raise_failure
from popgraph.backends.c.run.executable import CExecutable
from popgraph.backends.c.run.library import Code, load
from popgraph.backends.interface import check_threads
from popgraph.support.arrays import Array, ArrayStore
from popgraph.support.errors import RunError
from popgraph.support.given import as_array, fitted
from popgraph.support.poison import fill_with_poison, is_poisoned
from popgraph.support.shapes import Shape, prod, text
from popgraph.support.sizes import Place, Size, sizes_in, with_sizes

MOST_KNOWN = 256
"""Combinations of shapes whose sizes are remembered: finding them takes several microseconds."""


MOST_HELD = 4
"""An output holds at most so many times its own memory; a smaller part of the bound is copied."""


class SizedExecutable(CExecutable):
    """
    A program whose loops end at sizes of the call.

    Its memory is that of the bounds. Arrays of which a size is the outermost axis that has more
    than one place are used where the caller has them; others are copied row by row.
    """

    def __init__(
        self,
        table: Table,
        code: Code,
        weights: ArrayStore,
        threads: int,
        prepared: Prepared | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(table, code, weights, threads, prepared, key)
        self.sizes = table.sizes
        self._numbers = [self._views("input")[size.name] for size in self.sizes]
        for size in self.sizes:
            del self.inputs[size.name], self._inputs[size.name]
        for size in self.sizes:
            self._inputs |= self._copied("input", self.inputs, size.inputs)
            self._outputs |= self._copied("output", self.outputs, size.outputs)
        self._made = {
            name: made for name, made in self._made.items() if made is self._outputs[name]
        }
        self._scratch = self._unwritten() if is_poisoned() else ()
        self._known: dict[tuple[Shape, ...], dict[str, int]] = {}
        """The sizes that inputs of these shapes bring."""
        self._ends = {name: _ends(self.sizes, name) for name in self.outputs}

    def _copied(
        self, space: str, known: Mapping[str, tuple[object, Shape]], places: Sequence[Place]
    ) -> dict[str, Array]:
        """The own memory of arrays that are copied row by row."""
        own = self._views(space)
        return {
            place.tensor: own[place.tensor]
            for place in places
            if prod(known[place.tensor][1][: place.axis]) > 1
        }

    def serves(self, shapes: Mapping[str, Shape]) -> dict[str, int] | None:
        """The sizes that inputs of these shapes bring; None if the program is not for them."""
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

    def _run(self, inputs: Mapping[str, Array], taken: Mapping[str, Array]) -> dict[str, Array]:
        given = inputs if self._fits(inputs) else self.fitted(inputs)
        key = tuple(given[name].shape for name in self._inputs)
        numbers = self._known.get(key)
        if numbers is None:
            numbers = self._numbers_of(given)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = numbers
        for memory, number in zip(self._numbers, numbers.values(), strict=True):
            memory[...] = number
        for name, view in self._inputs.items():
            _put(given[name], view)
        for made in self._made.values():
            made.allocate()
        for scratch in self._scratch:
            fill_with_poison(scratch)
        self._entry(self._address)
        if self._code.exchanges:
            raise_failure()
        return {name: self._taken(name, view, numbers) for name, view in self._outputs.items()}

    def _fits(self, inputs: Mapping[str, Array]) -> bool:
        """Whether inputs are arrays of the element types that the program has."""
        return inputs.keys() == self._inputs.keys() and all(
            type(array) is np.ndarray and array.dtype is self._inputs[name].dtype
            for name, array in inputs.items()
        )

    def _numbers_of(self, given: Mapping[str, Array]) -> dict[str, int]:
        """The sizes that inputs bring; RunError if they bring none that the program is for."""
        numbers = self.serves({name: array.shape for name, array in given.items()})
        if numbers is None:
            bounds = ", ".join(f"{size.name} up to {size.bound}" for size in self.sizes)
            shapes = ", ".join(f"{name!r} of {text(array.shape)}" for name, array in given.items())
            raise RunError(f"this program is for {bounds}, not for inputs {shapes}")
        return numbers

    def _taken(self, name: str, view: Array | MadeInPlace, numbers: Mapping[str, int]) -> Array:
        """An output as far as the sizes go."""
        ends = self._ends.get(name)
        if not ends:
            return view.copy()
        part = tuple(
            slice(None) if end is None else slice(0, numbers[end[0]] * end[1]) for end in ends
        )
        if isinstance(view, MadeInPlace):
            whole = view.copy()
            made = whole[part]
            return made if whole.nbytes <= MOST_HELD * made.nbytes else made.copy()
        return view[part].copy()

    def run_in_row(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        return Executable.run_in_row(self, inputs, count)

    def _donated(self, inputs: Mapping[str, Array], donate: Collection[str]) -> dict[str, Array]:
        """None: what may be donated is made anew, in memory for the bound."""
        donated(self.fitted(inputs), donate, self.table.donations, self.inputs)
        return {}

    @property
    def donations(self) -> Mapping[str, str]:
        return {}


def _ends(sizes: tuple[Size, ...], output: str) -> tuple[tuple[str, int] | None, ...]:
    """For each axis of an output up to the last that ends at a size: its name and the factor."""
    found = {
        place.axis: (size.name, place.factor)
        for size in sizes
        for place in size.outputs
        if place.tensor == output
    }
    return tuple(found.get(axis) for axis in range(max(found, default=-1) + 1))


def _put(array: Array, view: Array | ReadInPlace) -> None:
    """Gives an input its elements."""
    if isinstance(view, ReadInPlace):
        view[...] = array
    else:
        view[tuple(slice(0, size) for size in array.shape)] = array


def executable(
    table: Table,
    code: Code,
    weights: ArrayStore,
    threads: int,
    prepared: Prepared | None = None,
    key: str | None = None,
) -> CExecutable:
    """The executable of a library, and of the memory that its program is called with."""
    kind = SizedExecutable if table.sizes else CExecutable
    return kind(table, code, weights, threads, prepared, key)


def build_again(
    key: ProgramKey, weights: ArrayStore, threads: int = 1, *, is_told: bool = False
) -> CExecutable | None:
    """
    The executable that `build` saved under this key, without any of its work but warnings.

    Who `is_told` has had them.
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
