"""Open models: one program per combination of shapes and structural values, in an LRU cache."""

from __future__ import annotations

import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from popgraph.backends.base import ComputedBy, Executable
from popgraph.backends.interface import KnownModel
from popgraph.support.arrays import Array
from popgraph.support.description import TensorSpec
from popgraph.support.dtypes import DType, from_numpy
from popgraph.support.errors import RunError, UnsupportedError
from popgraph.support.inputs import as_array, check_names, fitted
from popgraph.support.locks import Lock
from popgraph.support.memo import cached_property
from popgraph.support.shapes import KNOWN_ELEMENTS, Shape, prod, text
from popgraph.support.sizes import Size, SizedAxis, symbolic_shape, with_sizes
from popgraph.support.warnings import ManyProgramsWarning

SPECIALISATIONS = 8
"""Programs of one model kept compiled; the least recently used is evicted."""
MANY_VALUES = 32
"""Number of values of a structural input after which a warning explains the cost."""
MANY_SIZES = 16
"""Number of sizes of a dimension after which a warning explains the cost."""
MOST_ROUTES = 256
"""Most combinations of shapes whose program is remembered."""

FARTHEST = 16
"""A program serves sizes above 1/16 of its bound; for fewer rows, another program is faster."""

Dimension: TypeAlias = tuple[str, int, str]
"""(input, axis, name of the dimension or "")."""
Signature: TypeAlias = tuple[tuple[tuple[str, Shape], ...], tuple[tuple[str, str, bytes], ...]]
"""The shape of each input; for structural inputs also element type and elements."""


class Undecided(UnsupportedError):
    """For these shapes, more inputs decide the structure of a program than the call specifies."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(
            "the branches of an If differ for these shapes",
            ", ".join(f"input {name!r}" for name in names),
            "it decides which is taken: give its value",
        )
        self.names = names


@dataclass(frozen=True)
class Interface:
    """The properties of an open model that are known before a call."""

    inputs: tuple[str, ...]
    structural: tuple[str, ...]
    """Inputs whose values decide the structure of the program."""
    branching: tuple[str, ...] = ()
    """Inputs whose values do so for some shapes only, in branches."""
    dimensions: Sequence[Dimension] = ()
    """The unknown dimensions of inputs."""
    types: Sequence[Sequence[Any]] = ()
    """The inputs as rows of `TensorSpec`, which a shortcut can store."""

    @cached_property
    def specs(self) -> Mapping[str, TensorSpec]:
        """The specification of each input."""
        return {row[0]: TensorSpec.from_row(row) for row in self.types}

    def fitted(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs in their element types; RunError if one is missing, unknown or unsuitable."""
        if inputs.keys() != set(self.inputs):
            check_names(inputs, self.inputs)
        arrays = {name: as_array(name, inputs[name]) for name in self.inputs}
        return arrays | {
            name: fitted(name, arrays[name], dtype) for name, dtype in self.element_types.items()
        }

    @cached_property
    def element_types(self) -> Mapping[str, DType]:
        """The element types of inputs, where the model specifies them."""
        return {
            name: from_numpy(spec.dtype)
            for name, spec in self.specs.items()
            if spec.dtype is not None
        }

    def sizes(self, call: Call) -> dict[str, int]:
        """The size of each unknown dimension in a call."""
        return {
            name: call.shapes[places[0].tensor][places[0].axis]
            for name, places in self.places.items()
            if all(place.axis < len(call.shapes[place.tensor]) for place in places)
        }

    def check_bounds(self, bounds: Mapping[str, int]) -> None:
        """RunError unless these are valid bounds of unknown dimensions."""
        for name, bound in bounds.items():
            if name not in self.places:
                listed = ", ".join(map(repr, self.places)) or "none"
                raise RunError(
                    f"bounds names {name!r}, which is not a symbolic dimension of the model",
                    hint=f"its symbolic dimensions: {listed}",
                )
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
                raise RunError(
                    f"the bound of {name!r} is {bound!r}", hint="it must be a positive integer"
                )

    @cached_property
    def places(self) -> dict[str, tuple[SizedAxis, ...]]:
        """The axes of each unknown dimension, by its name, or by input and axis if it has none."""
        found = dict[str, tuple[SizedAxis, ...]]()
        for tensor, axis, name in self.dimensions:
            called = name or f"axis {axis} of {tensor!r}"
            called = f"size {called}" if called in self.inputs else called
            found[called] = (*found.get(called, ()), SizedAxis(tensor, axis))
        return found

    def call(self, inputs: Mapping[str, Array]) -> Call:
        """The call for these arrays; RunError if they do not fit the model."""
        arrays = self.fitted(inputs)
        values, choices = (
            {
                name: np.array(arrays[name], order="C")
                for name in names
                if arrays[name].size <= KNOWN_ELEMENTS
            }
            for names in (self.structural, self.branching)
        )
        return Call({name: array.shape for name, array in arrays.items()}, values, choices)


@dataclass(frozen=True)
class Call:
    """The properties of a call's arrays that select a program."""

    shapes: Mapping[str, Shape]
    values: Mapping[str, Array]
    """The elements of structural inputs; inputs with too many elements count as data."""
    choices: Mapping[str, Array] = field(default_factory=dict)
    """The elements of branching inputs, while these are data."""
    sizes: tuple[Size, ...] = ()
    """Sizes that the program leaves open, up to their bounds."""

    def deciding(self, names: Sequence[str]) -> Call:
        """The same call with these branching inputs as structural ones."""
        values = {**self.values, **{name: self.choices[name] for name in names}}
        choices = {name: value for name, value in self.choices.items() if name not in names}
        return Call(self.shapes, values, choices, self.sizes)

    @cached_property
    def signature(self) -> Signature:
        """Equal for calls that the same program serves."""
        values = tuple(
            # Both names are needed: `str` includes the byte order, and several types have the str
            # `V1`.
            (name, f"{array.dtype.name} {array.dtype.str}", array.tobytes())
            for name, array in self.values.items()
        )
        return tuple(sorted(self.shapes.items())), values

    @property
    def sizings(self) -> list[tuple[Size, ...]]:
        """The sets of sizes that one program may leave open: all of them, one of them, or none."""
        data = [
            size
            for size in self.sizes
            if all(place.tensor not in self.values for place in size.inputs)
        ]
        return [*dict.fromkeys([tuple(data), *((size,) for size in data), ()])]

    def key(self, sizes: tuple[Size, ...]) -> object:
        """
        Cache key of a program with these open sizes.

        It contains the bounds instead of the call's sizes, and all sizes that were requested to be
        open.
        """
        if not self.sizes:
            return self.signature
        shapes = with_sizes(self.shapes, sizes, {size.name: size.bound for size in sizes})
        return replace(self, shapes=shapes).signature, self.sizes, sizes


@dataclass(frozen=True)
class ProgramRange:
    """The calls that a program of an open model serves."""

    shapes: Mapping[str, Shape]
    """The input shapes of the first call."""
    values: Mapping[str, Array]
    """The elements of structural inputs."""
    sizes: tuple[Size, ...]
    """The dimensions that may vary between calls."""
    memory: int
    """Bytes of inputs, outputs and intermediate values at the bounds of sizes."""

    @property
    def bounds(self) -> dict[str, int]:
        """The largest size of each dimension that may vary."""
        return {size.name: size.bound for size in self.sizes}

    def __str__(self) -> str:
        shapes = {
            name: symbolic_shape(name, shape, self.sizes) for name, shape in self.shapes.items()
        }
        values = [f"{name} = {array.tolist()}" for name, array in self.values.items()]
        listed = [f"{name} {text(shape)}" for name, shape in shapes.items()]
        return ", ".join([*listed, *values, *map(str, self.sizes)])


def _memory_of(program: Executable) -> int:
    """Bytes of the arena, and of inputs and outputs at the bounds of sizes."""
    arrays = (*program.inputs.values(), *program.outputs.values())
    return program.arena + sum(prod(shape) * dtype.numpy.itemsize for dtype, shape in arrays)


def is_near(size: int, bound: int) -> bool:
    """
    Whether a program for sizes up to a bound is efficient for this size.

    Size 1 is not: as a matrix-vector product, it takes 1.2 to 1.9 times as long as with a program
    of its own (an attention block, small CNNs, an MLP of two layers).
    """
    return size > 1 and bound < size * FARTHEST


def recalled(known: KnownModel, call: Call) -> Executable | None:
    """The stored program for a call; raises `Undecided` if that was stored."""
    if call.choices and (names := known.undecided(call.signature)):
        raise Undecided(names)
    for sizes in call.sizings:
        program = known.recall(call.key(sizes))
        if program is not None and program.serves(call.shapes) is not None:
            return program
    return None


class OpenModel:
    """
    A model with unknown dimensions or structural inputs; each call selects a program.

    Its programs share their variables: each continues with the values of the previous one.
    """

    def __init__(
        self,
        interface: Interface,
        make: Callable[[Call], Executable],
        bounds: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        interface.check_bounds(bounds)
        self.interface, self.bounds = interface, bounds
        """Upper bounds of dimensions, for which programs are built from the first call on."""
        self.make = make
        """Builds the program for a call; `Undecided` if the call's choices must be structural."""
        self._programs: OrderedDict[Signature, tuple[Call, Executable]] = OrderedDict()
        self._routes: dict[tuple[Shape, ...], tuple[Signature, Executable]] = {}
        """The program by input shapes, if these alone select it."""
        self._last_used: Executable | None = None
        self._undecided: dict[Signature, tuple[str, ...]] = {}
        """By signature, the branching inputs that turned out to be structural."""
        decisive = (*interface.structural, *interface.branching)
        self._routed = () if decisive else interface.inputs
        self._values: dict[str, set[bytes]] = {name: set() for name in decisive}
        """The values of each structural input so far, until the warning."""
        self._sizes: dict[str, set[int]] = {}
        """The sizes of each unknown dimension so far."""
        self._history: deque[Mapping[str, int]] = deque(maxlen=MANY_SIZES)
        """The sizes of the latest calls that needed a new program."""
        self._latest: Executable | None = None
        """The program with variables that ran last."""
        self._holders: dict[str, Executable] = {}
        """The program that holds the current value of each variable."""
        self._looking, self._building, self._stepping = Lock(), Lock(), Lock()

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        """Runs the program for these inputs; see `Executable.run`."""
        program = self._route(inputs)
        if program is None:
            call, program = self._program(self.interface.call(inputs))
            if call.values:
                inputs = {name: one for name, one in inputs.items() if name not in call.values}
        if not program.variables:
            return program.run(inputs, donate)
        with self._stepping.lock:
            return self._up_to_date(program).run(inputs, donate)

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The program for these inputs; structural inputs are not inputs of the program."""
        program = self._route(inputs)
        if program is None:
            _, program = self._program(self.interface.call(inputs))
        with self._stepping.lock:
            return self._up_to_date(program)

    def _route(self, inputs: Mapping[str, Array]) -> Executable | None:
        """The program by shapes alone; it checks the arrays itself."""
        if len(inputs) != len(self._routed):
            return None
        shapes = []
        for name in self._routed:
            array = inputs.get(name)
            if type(array) is not np.ndarray:
                return None
            shapes.append(array.shape)
        found = self._routes.get(tuple(shapes))
        if found is None:
            return None
        signature, program = found
        if program is not self._last_used:
            with self._looking:
                self._use(signature)
        return program

    def _use(self, signature: Signature) -> None:
        """Marks a program as most recently used; the caller holds the lock."""
        if signature in self._programs:
            self._programs.move_to_end(signature)
            self._last_used = self._programs[signature][1]

    def _program(self, call: Call) -> tuple[Call, Executable]:
        """The program for a call, and the call with all values that the program is built for."""
        call = self._decided(call)
        program = self._kept_for(call)
        if program is None:
            with self._building:  # Who waits here may find what another thread has built.
                call = self._decided(call)
                program = self._kept_for(call)
                if program is None:
                    call, program = self._made(self._with_bounds(call))
                    self._keep(call, program)
                    self._count_values(call)
                    self._count_sizes(call, program)
        return call, program

    def decided_by(self, inputs: Mapping[str, Array]) -> tuple[str, ...]:
        """The inputs whose values select the program for inputs of these shapes."""
        call = self.interface.call(inputs)
        if self.interface.branching and call.signature not in self._undecided:
            try:
                self._keep(call, self._exactly(call) or self.make(call))
            except Undecided as error:
                self._undecided[call.signature] = error.names
        return (*self.interface.structural, *self._undecided.get(call.signature, ()))

    def _decided(self, call: Call) -> Call:
        while call.signature in self._undecided:
            call = call.deciding(self._undecided[call.signature])
        return call

    def _made(self, call: Call) -> tuple[Call, Executable]:
        while True:
            try:
                return call, self.make(call)
            except Undecided as error:
                self._undecided[call.signature] = error.names
                call = call.deciding(error.names)

    def _exactly(self, call: Call) -> Executable | None:
        """The cached program for exactly this call."""
        with self._looking:
            found = self._programs.get(call.signature)
        return None if found is None else found[1]

    def _kept_for(self, call: Call) -> Executable | None:
        """The cached program for this call, or for a range of sizes that includes it."""
        with self._looking:
            signature = self._serving(call)
            if signature is None:
                return None
            self._use(signature)
            program = self._programs[signature][1]
            if self._routed:
                if len(self._routes) >= MOST_ROUTES:
                    self._routes.clear()
                self._routes[tuple(call.shapes.values())] = signature, program
            return program

    def _serving(self, call: Call) -> Signature | None:
        """The signature of a program that serves the call; None if there is none."""
        if call.signature in self._programs:
            return call.signature
        values = call.signature[1]
        for signature, (_, program) in self._programs.items():
            if not program.sizes or signature[1] != values:
                continue
            numbers = program.serves(call.shapes)
            if numbers and self._is_near(program, numbers):
                return signature
        return None

    def _is_near(self, program: Executable, numbers: Mapping[str, int]) -> bool:
        """Whether a program that was scheduled for its bounds is efficient for these sizes."""
        return all(
            size.bound == self.bounds.get(size.name) or is_near(numbers[size.name], size.bound)
            for size in program.sizes
        )

    def _with_bounds(self, call: Call) -> Call:
        """Leaves those sizes open that have varied between calls."""
        found = dict[tuple[int, ...], Size]()
        sizes = self.interface.sizes(call)
        for name, size in sizes.items():
            bound = self._bound(name, size)
            places = self.interface.places[name]
            if bound is None or any(place.tensor in call.values for place in places):
                continue
            # Sizes that have always been equal are treated as one, which is usually true.
            history = (*(each.get(name, 0) for each in self._history), size)
            same = found.get(history)
            if same is not None and self._history and same.bound == bound:
                found[history] = replace(same, inputs=(*same.inputs, *places))
            else:
                found[history if same is None else (*history, len(found))] = Size(
                    name, bound, places
                )
        return replace(call, sizes=tuple(found.values()))

    def _bound(self, name: str, size: int) -> int | None:
        """The upper bound for a size that is left open; None to fix the size."""
        if 0 < size <= self.bounds.get(name, 0):
            return self.bounds[name]
        seen = self._sizes.get(name, set()) | ({0} if name in self.bounds else set())
        if size < 2 or not seen - {size}:
            return None
        with self._looking:
            bounds = {
                each.bound
                for _, program in self._programs.values()
                for each in program.sizes
                if each.name == name
            }
        good = [bound for bound in (*bounds, max(seen)) if size <= bound and is_near(size, bound)]
        return min(good, default=1 << (2 * size - 1).bit_length())

    @property
    def programs(self) -> list[ProgramRange]:
        """The cached programs, the most recently used last."""
        with self._looking:
            kept = list(self._programs.values())
        return [
            ProgramRange(call.shapes, call.values, one.sizes, _memory_of(one)) for call, one in kept
        ]

    @property
    def kept(self) -> list[Call]:
        """The calls of the cached programs, the most recently used last."""
        with self._looking:
            return [call for call, _ in self._programs.values()]

    @property
    def computed_by(self) -> ComputedBy:
        """C or Python, for the cached programs."""
        with self._looking:
            programs = [program for _, program in self._programs.values()]
        return reduce(or_, (program.computed_by for program in programs), ComputedBy())

    def _keep(self, call: Call, program: Executable) -> None:
        """
        Caches a program and evicts the least recently used, which is freed after its last run.
        """
        with self._looking:
            self._routes.clear()
            self._programs[call.signature] = call, program
            self._use(call.signature)
            while len(self._programs) > SPECIALISATIONS:
                self._programs.popitem(last=False)

    def _up_to_date(self, program: Executable) -> Executable:
        """Copies the current variables into the program."""
        if program is not self._latest and program.variables:
            for name in program.variables:
                holder = self._holders.get(name, program)
                if holder is not program:
                    program.write(name, holder.read(name))
                self._holders[name] = program
            self._latest = program
        return program

    def _count_values(self, call: Call) -> None:
        for name, array in call.values.items():
            seen = self._values.get(name)
            if seen is None:
                continue
            seen.add(array.tobytes())
            if len(seen) >= MANY_VALUES:
                del self._values[name]
                warnings.warn(
                    f"input {name!r} decides the structure of the model, and has had {len(seen)} "
                    f"different values: a program is compiled for each, and {SPECIALISATIONS} are "
                    "kept\n  try: round it to a few values (pad to a few sizes), or let the model "
                    "compute with it as data",
                    ManyProgramsWarning,
                    stacklevel=5,
                )

    def _count_sizes(self, call: Call, program: Executable) -> None:
        sizes = self.interface.sizes(call)
        self._history.append(sizes)
        for name, size in sizes.items():
            seen = self._sizes.setdefault(name, set())
            before = len(seen)
            seen.add(size)
            if program.sizes:
                continue
            because = f": {program.unsized}" if program.unsized else ""
            if before < MANY_SIZES == len(seen):
                warnings.warn(
                    f"the dimension {name} has had {len(seen)} sizes, from {min(seen)} to "
                    f"{max(seen)}: a program is compiled for each, and {SPECIALISATIONS} are "
                    f"kept in memory{because}\n  try: pad it to a few sizes, such as powers of 2; "
                    "on disk, all programs are kept, and kernels that do not depend on it are "
                    "shared",
                    ManyProgramsWarning,
                    stacklevel=5,
                )
