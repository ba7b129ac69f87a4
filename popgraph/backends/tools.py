"""The tools of a backend: its code as text, times of its kernels, exported sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import CallOp, RunsPrograms
from popgraph.dialects.tile.structured.schedule_file import Row
from popgraph.support.arrays import Array
from popgraph.support.machine import Machine

Files: TypeAlias = dict[str, list[memoryview]]
"""Contents by name, in parts."""

UNKNOWN = 2**62
"""The time of a call that has not run, in nanoseconds."""


@dataclass(frozen=True)
class Traced:
    """The time of a call in a step, over all its runs."""

    op: CallOp | RunsPrograms
    count: int
    """The number of its runs."""
    nanoseconds: int
    bodies: tuple[TracedBody, ...]

    def scaled(self, ratio: float) -> Traced:
        """The same with all times multiplied by a ratio."""
        bodies = tuple(
            replace(body, calls=tuple(call.scaled(ratio) for call in body.calls))
            for body in self.bodies
        )
        return replace(self, nanoseconds=round(self.nanoseconds * ratio), bodies=bodies)

    def kernels(self) -> Iterator[Traced]:
        """The calls of kernels in here, the call itself included."""
        if isinstance(self.op, CallOp):
            yield self
        for body in self.bodies:
            for call in body.calls:
                yield from call.kernels()


@dataclass(frozen=True)
class TracedBody:
    """A program that a branch or a loop runs."""

    name: str
    count: int
    """The number of its runs: iterations of a loop, or the times that a branch was taken."""
    calls: tuple[Traced, ...]


class Profile(Protocol):
    """A program whose calls of kernels can be timed one by one; times are in nanoseconds."""

    @property
    def executable(self) -> Executable:
        """The program; a run of it measures."""

    @property
    def calls(self) -> Sequence[CallOp | RunsPrograms]:
        """The calls of a step, in order."""

    def measure(
        self, inputs: Mapping[str, Array], rounds: int, *, call_by_call: bool = True
    ) -> None:
        """Runs the program `rounds` times as a whole and, if so wished, as often call by call."""

    @property
    def total(self) -> int:
        """The fastest time of the whole program."""

    @property
    def times(self) -> list[int]:
        """The fastest time of each call."""

    @property
    def traced(self) -> list[Traced]:
        """The time of each call and of the calls inside it, scaled to its time alone."""


class KernelText(Protocol):
    """A kernel in the language of the backend."""

    @property
    def name(self) -> str:
        """Its name in the IR."""

    @property
    def symbol(self) -> str:
        """Its name in the language."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class ExportForm:
    """A user's wishes for exported sources."""

    target: str
    name: str = "model"
    weights: str = "incbin"
    threads: int = 1
    malloc: bool = True
    train: bool = False
    """Whether the program is a step of training."""


@dataclass(frozen=True)
class Vector:
    """
    Inputs, and the outputs of the reference backend for them.

    The outputs of a training are those after `Exporter.steps` steps on the same inputs.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    sizes: Sequence[int] = ()
    """The sizes of the call, in the order in which the program has them."""


@dataclass(frozen=True)
class Exported:
    """The contents of files by name, and the memory that they need."""

    files: Files
    rom: int
    """Bytes of constants; code comes on top."""
    ram: int


class Exporter(Protocol):
    """Writes sources with an interface for one target."""

    @property
    def machine(self) -> Machine:
        """The machine that passes decide for."""

    @property
    def is_here(self) -> bool:
        """Whether that is this machine, so that schedules measured on it apply."""

    @property
    def steps(self) -> int:
        """The number of steps that the check of the sources runs before it compares outputs."""

    def export(self, module: ModuleOp, weights: WeightStore, vectors: Sequence[Vector]) -> Exported:
        """
        The sources of the program `main`, and a check that runs it on test vectors.

        There is one, or one for each of some sizes, the first for the bounds. The inputs of the
        others are the front of its inputs.
        """


class Tools(Protocol):
    """A backend's code as text, its profiles and its exports. A module may be one."""

    def kernels(self, module: ModuleOp) -> Sequence[KernelText]:
        """The kernels of a module that has gone through all passes."""

    def sources(self, module: ModuleOp, *, threads: int | None = None) -> dict[str, str]:
        """Its translation units and headers (`*.h`) by the names of files."""

    def emit(self, module: ModuleOp, weights: WeightStore, *, threads: int | None = None) -> Files:
        """The sources, the memory that they begin with, and a description of their table."""

    def profile(self, module: ModuleOp, weights: WeightStore, threads: int = 1) -> Profile:
        """The program, ready to be timed."""

    def exporter(self, form: ExportForm) -> Exporter:
        """Writes sources in this form; BackendError if a wish cannot be met."""

    def keep_measured(self, rows: Iterable[Row]) -> Path:
        """Keeps schedules that were measured, for all later compilations on this machine."""
