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
    """What a call took in a step, all its runs together."""

    op: CallOp | RunsPrograms
    count: int
    """How often it ran."""
    nanoseconds: int
    bodies: tuple[TracedBody, ...]

    def scaled(self, ratio: float) -> Traced:
        """The same with other times, of which each is so large a part as before."""
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
    """How often it ran: the turns of a loop, or how often a branch was taken."""
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
        """What each call took, and what ran in it: parts of the time that it takes alone."""


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
    Inputs, and what the reference backend makes of them.

    Of a training, that is after so many steps on the same inputs.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class Exported:
    """The contents of files by name, and what they need of a machine."""

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
        """How many steps the check of the sources runs before it compares outputs."""

    def export(self, module: ModuleOp, weights: WeightStore, vector: Vector) -> Exported:
        """The sources of the program `main`, and a check that runs it on a test vector."""


class Tools(Protocol):
    """The answers of a backend to those who show, measure or write its code; a module may be."""

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
