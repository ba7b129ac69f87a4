"""The executable of a compiled program: persistent memory, one pointer table, one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

import numpy as np

from popgraph.backends.base import ComputedBy, NativeExecutable
from popgraph.backends.c.cache.program_cache import Prepared
from popgraph.backends.c.memory.donations import donated, in_memory_of
from popgraph.backends.c.memory.pages import (
    LARGE_PAGE,
    aligned,
    reserved,
    scratch,
    to_huge_pages,
    together,
    touched,
    zeros,
)
from popgraph.backends.c.memory.table import ARENA, PERSISTENT, THREADS, Literal, Slot, Table
from popgraph.backends.c.memory.zero_copy import (
    LARGE,
    MadeInPlace,
    Memory,
    Pointers,
    Ports,
    ReadInPlace,
)
from popgraph.backends.c.run.library import Code
from popgraph.support.arrays import Array, ArrayStore, SharedArrays
from popgraph.support.computed import Computed
from popgraph.support.errors import RunError
from popgraph.support.forked import in_child
from popgraph.support.index_checks import raise_errors
from popgraph.support.locks import ExclusiveSection
from popgraph.support.poison import fill_with_poison, is_poisoned
from popgraph.support.shapes import text

Made = TypeVar("Made", ReadInPlace, MadeInPlace)


class Blank:
    """Memory of a future program, whose pages a thread provides while the C compiler runs."""

    def __init__(self, table: Table, shared: SharedArrays) -> None:
        _, missing = _packings(table, shared)
        reserve = reserved(shared)
        self.packings = Computed(lambda: touched(together(missing, reserve)))
        """Packings that no program of the model shares."""
        # Runs below the bounds need less, and a child only stores the program.
        is_used = not table.sizes and not in_child()
        size = max(table.arena, 1)
        self.arena = Computed(lambda: touched({"": scratch(size)})[""]) if is_used else None


def _packings(table: Table, shared: SharedArrays) -> tuple[dict[str, Array], dict[str, int]]:
    """The packings that programs of the model share, and the bytes of all others."""
    held = {key: shared.get(key) for key in table.packings}
    found = {key: array for key, array in held.items() if array is not None}
    return found, {key: size for key, size in table.packings.items() if key not in found}


class CExecutable(NativeExecutable):
    """A compiled program with its memory. `run` is thread-safe: concurrent calls wait."""

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
        """
        Without `prepared` results, runs `prepare`, which packs weights unless another program of
        the model has packed them.

        `key` is the key in the program cache, if the program is cached. `blank` is memory for it.
        """
        self.key = key
        self._step_section = ExclusiveSection()
        self._written: set[str] = set()
        """Variables that were written since a fork interrupted a step."""
        self.table = table
        self._arrays: list[Array | None] = []
        pointers = (ctypes.c_void_p * len(table.slots))()
        for number, slot in enumerate(table.slots):
            array = self._memory(slot, prepared, weights, blank)
            self._arrays.append(array)
            if array is not None:
                pointers[number] = array.ctypes.data
        pointers[table.slots.index(THREADS)] = threads
        self._pointers, self._address = pointers, ctypes.addressof(pointers)
        self._code, self._entry = code, code.run
        self.packings = self._prepare(weights, blank) if prepared is None else prepared.packings
        """The packed weights by key, which other programs of the model may share."""
        for key, number in table.named("packing").items():
            self._arrays[number] = self.packings[key]
            pointers[number] = self.packings[key].ctypes.data
        self.inputs = self._signature("input")
        inputs, outputs = self._views("input"), self._views("output")
        self._checks = [
            (check, outputs.pop(check.output)) for check in table.checks if check.output in outputs
        ]
        """The checks of indices, with the memory that each reads."""
        self.outputs = {name: self._signature("output")[name] for name in outputs}
        self.variables = self._signature("variable")
        read = self._in_place("input", inputs, ReadInPlace)
        made = self._in_place("output", outputs, MadeInPlace)
        self._ports = Ports.of(inputs, read, outputs, made)
        self._variables = self._views("variable")
        self._scratch = self._unwritten() if is_poisoned() else ()
        """The memory that is poisoned before each run."""

    def _prepare(self, weights: ArrayStore, blank: Blank | None) -> dict[str, Array]:
        """Runs `prepare`; returns all packings, shared ones included."""
        found, missing = _packings(self.table, weights.shared)
        made = {} if blank is None else blank.packings()
        if made.keys() != missing.keys():
            made = together(missing)
        slots, numbers = self.table.slots, self.table.named("packing")
        steps = [([key], slots[numbers[key]].sources) for key in made]
        if self.table.persistent:  # A single call also computes its other contents.
            steps = [([*made], tuple(range(len(slots))))]
        for keys, sources in steps:
            held = {numbers[key]: made[key] for key in keys}
            for number in sources:
                if slots[number].prepared and (literal := slots[number].literal) is not None:
                    held[number] = _usable(literal.array(weights))
            for number, array in held.items():
                self._pointers[number] = array.ctypes.data
            self._code.prepare(self._address)  # Skips packings whose pointer is null.
            for number in held:
                self._pointers[number] = None
        return found | {key: weights.shared.share(key, array) for key, array in made.items()}

    def share(self, other: CExecutable) -> None:
        for name, number in other.table.named("variable").items():
            if name in self._variables:
                self._put(self.table.named("variable")[name], other._arrays[number])
        mine, theirs = (one._arrays[one.table.slots.index(ARENA)] for one in (self, other))
        assert mine is not None and theirs is not None
        larger = mine if mine.nbytes > theirs.nbytes else theirs
        for one in (self, other):
            one._put(one.table.slots.index(ARENA), larger)
            one._scratch = one._unwritten() if is_poisoned() else ()
        self._variables = self._views("variable")
        self._step_section, self._written = other._step_section, other._written

    def twin(self, weights: ArrayStore, own: Collection[str]) -> CExecutable:
        threads = self._pointers[self.table.slots.index(THREADS)] or 1
        made = CExecutable(self.table, self._code, weights, threads, self.prepared)
        for name, number in self.table.named("variable").items():
            if name not in own:
                made._put(number, self._arrays[number])
        made._variables = made._views("variable")
        return made

    def _put(self, number: int, array: Array | None) -> None:
        """Replaces the memory of a slot."""
        assert array is not None
        self._arrays[number], self._pointers[number] = array, array.ctypes.data

    def _unwritten(self) -> tuple[Array, ...]:
        """The memory without content before a run; zero-copy outputs are allocated each time."""
        arena = self._arrays[self.table.slots.index(ARENA)]
        assert arena is not None
        outputs = (memory for _, memory in (*self._ports.outputs, *self._checks))
        return (arena, *(memory for memory in outputs if isinstance(memory, np.ndarray)))

    @property
    def arena(self) -> int:
        return self.table.arena

    @property
    def prepared(self) -> Prepared:
        """The results of `prepare`."""
        return Prepared(self.persistent, self.packings)

    @property
    def persistent(self) -> Array:
        """The memory that `prepare` filled, without packings; read-only after that."""
        array = self._arrays[self.table.slots.index(PERSISTENT)]
        assert array is not None
        return array[: self.table.persistent]

    def _memory(
        self, slot: Slot, prepared: Prepared | None, weights: ArrayStore, blank: Blank | None
    ) -> Array | None:
        match slot.space:
            case "threads" | "packing":
                return None
            case "arena" if blank is not None and blank.arena is not None:
                return blank.arena()
            case "arena":
                return scratch(max(self.table.arena, 1))
            case "persistent":
                size = max(self.table.persistent, 1)
                return aligned(size) if prepared is None else prepared.persistent
            case "constant" if slot.prepared:
                return None
        assert slot.dtype is not None
        first = None if slot.literal is None else slot.literal.array(weights)
        if slot.space == "constant":
            assert slot.literal is not None and first is not None, "a constant has a literal"
            if prepared is None:
                first = _in_huge_pages(slot.literal, first, weights.shared)
            return _usable(first)
        count = int(np.prod(slot.shape, dtype=np.int64))
        allocated = zeros if slot.space != "output" and first is None else aligned
        array = allocated(count * slot.dtype.numpy.itemsize).view(slot.dtype.numpy)
        array = array.reshape(slot.shape)
        if first is not None:
            np.copyto(array, first)
        return array

    def _signature(self, space: str) -> dict:  # type: ignore[type-arg]
        found = {}
        for name, number in self.table.named(space).items():
            slot = self.table.slots[number]
            found[name] = (slot.dtype, slot.shape)
        return found

    def _views(self, space: str) -> dict[str, Array]:
        found = {}
        for name, number in self.table.named(space).items():
            array = self._arrays[number]
            assert array is not None
            found[name] = array
        return found

    def _in_place(
        self, space: str, views: Mapping[str, Array], made: Callable[[Array, Pointers, int], Made]
    ) -> dict[str, Made]:
        """Zero-copy replacements of large arrays' memory."""
        numbers = self.table.named(space)
        return {
            name: made(view, self._pointers, numbers[name])
            for name, view in views.items()
            if view.nbytes >= LARGE and view.flags.c_contiguous
        }

    @property
    def donations(self) -> Mapping[str, str]:
        return self.table.donations

    @property
    def computed_by(self) -> ComputedBy:
        return ComputedBy(in_c=True)

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        taken = self._donated(inputs, donate) if donate else None
        section = self._step_section
        with section.lock:
            if section.busy or section.interrupted:
                self._check_whole()
            section.busy = True
            try:
                if taken:
                    return self._run_in_memory_of(taken, inputs)
                return self._run(inputs, self._ports)
            finally:
                section.busy = False

    def _donated(self, inputs: Mapping[str, Array], donate: Collection[str]) -> dict[str, Array]:
        self.fitted(inputs)
        return donated(inputs, donate, self.donations, self.inputs)

    def _run(self, inputs: Mapping[str, Array], ports: Ports) -> dict[str, Array]:
        """Runs a step: copies the inputs, enters the program, copies the outputs."""
        if len(inputs) != len(ports.inputs):
            inputs, ports = self._suited(inputs, ports)
        for name, dtype, shape, memory in ports.inputs:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                inputs, ports = self._suited(inputs, ports)
                for name, _, _, memory in ports.inputs:
                    memory[...] = inputs[name]
                break
            memory[...] = array
        for made in ports.made:
            made.allocate()
        for unwritten in self._scratch:
            fill_with_poison(unwritten)
        self._entry(self._address)
        if self._checks:
            raise_errors(self._checks)
        found = {}
        for name, written in ports.outputs:  # A comprehension takes 0.1 us more in Python 3.11.
            found[name] = written.copy()
        return found

    def _run_in_memory_of(
        self, taken: Mapping[str, Array], inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Runs a step in which outputs overwrite the arrays `taken` from the inputs."""
        ports = self._ports.in_memory_of(taken, self.donations)
        with ExitStack() as stack:
            for name, array in taken.items():
                stack.enter_context(in_memory_of(array, self._pointers, self._places(name)))
            return self._run(inputs, ports)

    def _suited(
        self, inputs: Mapping[str, Array], ports: Ports
    ) -> tuple[Mapping[str, Array], Ports]:
        """The inputs of a call, converted for the next run, and the ports for their sizes."""
        return self.fitted(inputs), ports

    def run_stacked(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        ports = self._ports
        if ports.made or not self._are_rows(inputs, count):
            return super().run_stacked(inputs, count)
        views = self._views("output")
        made = {
            name: np.empty((count, *shape), dtype.numpy)
            for name, (dtype, shape) in self.outputs.items()
        }
        read = [(memory, inputs[name]) for name, _, _, memory in ports.inputs]
        written = [(views[name], rows) for name, rows in made.items()]
        section = self._step_section
        with section.lock:
            if section.busy or section.interrupted:
                self._check_whole()
            section.busy = True
            try:
                self._run_each(read, written, count)
            finally:
                section.busy = False
        return made

    def _are_rows(self, inputs: Mapping[str, Array], count: int) -> bool:
        return inputs.keys() == self.inputs.keys() and all(
            inputs[name].shape == (count, *shape) and inputs[name].dtype == dtype
            for name, dtype, shape, _ in self._ports.inputs
        )

    def _run_each(
        self,
        inputs: Sequence[tuple[Memory, Array]],
        outputs: Sequence[tuple[Array, Array]],
        count: int,
    ) -> None:
        """The loop over runs, with as little overhead as possible."""
        entry, address, scratch, checks = self._entry, self._address, self._scratch, self._checks
        for at in range(count):
            for memory, rows in inputs:
                memory[...] = rows[at]
            for unwritten in scratch:
                fill_with_poison(unwritten)
            entry(address)
            for view, rows in outputs:
                rows[at] = view
            if checks:
                raise_errors(checks)

    def _places(self, name: str) -> tuple[int, int]:
        """The slots of a donated input and its output."""
        return self.table.named("input")[name], self.table.named("output")[self.donations[name]]

    def _check_whole(self) -> None:
        """Raises RunError while a step of this program is unfinished."""
        if self._step_section.busy:
            raise RunError(
                "this program is running: it was called again before the call had ended",
                "a signal handler, or an input that computes its array",
                "set a flag there and call the program later, or compile another one for it",
            )
        left = self._variables.keys() - self._written
        if left:
            raise RunError(
                "this process was forked in the middle of a step: only some variables have their "
                "next values",
                f"variable {', '.join(map(repr, sorted(left)[:3]))}",
                "write all variables first (weightsFromHost does), or fork between steps",
            )
        self._step_section.interrupted = False

    def place(self, variable: str, memory: Array) -> None:
        view = self.variable(variable)
        flags = memory.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            raise RunError(f"the memory of variable {variable!r} must be contiguous and writable")
        self._check_like(variable, view, memory)
        with self._step_section:
            self._put(self.table.named("variable")[variable], memory)
            self._variables[variable] = memory

    def read(self, variable: str) -> Array:
        with self._step_section:
            if self._step_section.interrupted and variable not in self._written:
                self._check_whole()
            return self.variable(variable).copy()

    def write(self, variable: str, value: Array) -> None:
        view = self.variable(variable)
        value = np.asarray(value)
        self._check_like(variable, view, value)
        with self._step_section:
            view[...] = value
            if self._step_section.interrupted:
                self._written.add(variable)

    @staticmethod
    def _check_like(variable: str, view: Array, value: Array) -> None:
        if value.shape != view.shape or value.dtype != view.dtype:
            raise RunError(
                f"variable {variable!r} is {view.dtype} of shape {text(view.shape)}, "
                f"not {value.dtype} of shape {text(value.shape)}"
            )

    def variable(self, name: str) -> Array:
        view = self._variables.get(name)
        if view is None:
            known = ", ".join(map(repr, self._variables)) or "none"
            raise RunError(f"the model has no variable {name!r}", hint=f"its variables are {known}")
        return view


def _usable(array: Array) -> Array:
    """The elements in the order and alignment that C requires."""
    return np.require(array, requirements=["C", "ALIGNED"])


def _in_huge_pages(literal: Literal, array: Array, shared: SharedArrays) -> Array:
    """The elements of a constant; a large one is copied once for all programs of the model."""
    if array.nbytes < LARGE_PAGE or not literal.key:
        return to_huge_pages(array)
    found = shared.get(literal.key)
    return shared.share(literal.key, to_huge_pages(array)) if found is None else found
