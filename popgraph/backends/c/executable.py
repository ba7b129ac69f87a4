"""What runs a compiled program? Persistent memory, one table of pointers, one call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.backends.c import module as printer
from popgraph.backends.c.library import Entry, load
from popgraph.backends.c.module import Layout, Slot
from popgraph.backends.c.toolchain import library
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.attributes import Array
from popgraph.dialects.tile import ProgramOp
from popgraph.support.debug import note_source
from popgraph.support.errors import BackendError, RunError
from popgraph.support.shapes import text

ALIGNMENT = 64
PARTS = 2
"""Kernels are compiled in this many translation units, at the same time."""


def aligned(size: int) -> Array:
    """Memory at an address that vectors like."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


class CExecutable(Executable):
    """A compiled program with its memory. Two threads may call `run` at once: one waits."""

    def __init__(
        self,
        program: ProgramOp,
        layout: Layout,
        entries: tuple[Entry, Entry],
        weights: WeightStore,
        threads: int,
    ) -> None:
        self._lock = threading.Lock()
        self._weights = weights
        self._arrays: list[Array | None] = []
        table = (ctypes.c_void_p * len(layout.slots))()
        sizes = {"arena": program.arena, "persistent": program.persistent}
        for number, slot in enumerate(layout.slots):
            array = None if slot.space == "threads" else self._memory(slot, sizes)
            self._arrays.append(array)
            table[number] = threads if array is None else array.ctypes.data
        self._table, self._address = table, ctypes.addressof(table)
        prepare, self._entry = entries
        prepare(self._address)
        self._release(layout)
        self.inputs = self._signature(layout, "input")
        self.outputs = self._signature(layout, "output")
        self.variables = self._signature(layout, "variable")
        self._inputs = self._views(layout, "input")
        self._outputs = self._views(layout, "output")
        self._variables = self._views(layout, "variable")

    def _memory(self, slot: Slot, sizes: Mapping[str, object]) -> Array:
        if slot.space in sizes:
            size = sizes[slot.space].value.data  # type: ignore[attr-defined]
            return aligned(max(size, 1))
        assert slot.dtype is not None
        first = None if slot.literal is None else self._weights.array(slot.literal)
        if slot.space == "constant":
            assert first is not None, "a constant has a literal"
            return np.require(first, requirements=["C", "ALIGNED"])
        count = int(np.prod(slot.shape, dtype=np.int64))
        array = aligned(count * slot.dtype.numpy.itemsize).view(slot.dtype.numpy)
        array = array.reshape(slot.shape)
        if first is not None:
            np.copyto(array, first)
        elif slot.space != "output":
            array.fill(0)
        return array

    def _release(self, layout: Layout) -> None:
        """What only `prepare` needed is not needed any more."""
        for number, slot in enumerate(layout.slots):
            if slot.prepared and slot.space == "constant":
                self._arrays[number] = None
                self._table[number] = None

    def _signature(self, layout: Layout, space: str) -> dict:  # type: ignore[type-arg]
        found = {}
        for name, number in layout.named(space).items():
            slot = layout.slots[number]
            found[name] = (slot.dtype, slot.shape)
        return found

    def _views(self, layout: Layout, space: str) -> dict[str, Array]:
        found = {}
        for name, number in layout.named(space).items():
            array = self._arrays[number]
            assert array is not None
            found[name] = array
        return found

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._lock:
            if len(inputs) != len(self._inputs):
                self.check(inputs)
            for name, view in self._inputs.items():
                array = inputs.get(name)
                if (
                    type(array) is not np.ndarray
                    or array.dtype is not view.dtype
                    or array.shape != view.shape
                ):
                    array = self._unusual(inputs, name)
                view[...] = array
            self._entry(self._address)
            return {name: view.copy() for name, view in self._outputs.items()}

    def _unusual(self, inputs: Mapping[str, Array], name: str) -> Array:
        """An error for what does not fit; what only looks unusual passes."""
        arrays = {key: np.asarray(value) for key, value in inputs.items()}
        self.check(arrays)
        return arrays[name]

    def read(self, variable: str) -> Array:
        with self._lock:
            return self._variable(variable).copy()

    def write(self, variable: str, value: Array) -> None:
        view = self._variable(variable)
        value = np.asarray(value)
        if value.shape != view.shape or value.dtype != view.dtype:
            raise RunError(
                f"variable {variable!r} is {view.dtype} of shape {text(view.shape)}, "
                f"not {value.dtype} of shape {text(value.shape)}"
            )
        with self._lock:
            view[...] = value

    def _variable(self, name: str) -> Array:
        view = self._variables.get(name)
        if view is None:
            known = ", ".join(map(repr, self._variables)) or "none"
            raise RunError(f"the model has no variable {name!r}", hint=f"its variables are {known}")
        return view


def build(
    module: ModuleOp, weights: WeightStore, threads: int = 1, name: str = "main"
) -> CExecutable:
    """Compiles the `tile.program` of that name, and the kernels, to an executable."""
    if threads < 1:
        raise BackendError(f"{threads} threads cannot run a program", hint="1 starts none")
    program = printer.find_program(module, name)
    layout = Layout(program)
    kernels = printer.print_kernels(module)
    units = [printer.program_unit(program, layout, kernels)]
    units += [printer.kernel_unit(group) for group in printer.split(kernels, PARTS)]
    for number, unit in enumerate(units):
        note_source(f"{name}_{number}.c", unit.text)
    entries = load(library(units), name)
    return CExecutable(program, layout, entries, weights, threads)
