"""The interface of a backend's tools: code as text, kernel times, exported sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import CallOp, RunsPrograms
from popgraph.dialects.tile.structured.schedule_file import Row
from popgraph.support.arrays import Array
from popgraph.support.boxes import Box
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
    """The number of runs."""
    nanoseconds: int
    bodies: tuple[TracedBody, ...]

    def scaled(self, ratio: float) -> Traced:
        """A copy with all times multiplied by a ratio."""
        bodies = tuple(
            replace(body, calls=tuple(call.scaled(ratio) for call in body.calls))
            for body in self.bodies
        )
        return replace(self, nanoseconds=round(self.nanoseconds * ratio), bodies=bodies)

    def kernels(self) -> Iterator[Traced]:
        """All kernel calls in this call, including itself."""
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
    """The number of runs: iterations of a loop, or how often a branch was taken."""
    calls: tuple[Traced, ...]


class Profile(Protocol):
    """A program whose kernel calls can be timed one by one; times are in nanoseconds."""

    @property
    def executable(self) -> Executable:
        """The program; running it measures."""

    @property
    def calls(self) -> Sequence[CallOp | RunsPrograms]:
        """The calls of a step, in order."""

    def measure(
        self, inputs: Mapping[str, Array], rounds: int, *, call_by_call: bool = True
    ) -> None:
        """Runs the program `rounds` times as a whole and, if `call_by_call`, in single calls."""

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
    """A kernel in the target language."""

    @property
    def name(self) -> str:
        """The name in the IR."""

    @property
    def symbol(self) -> str:
        """The name in the target language."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class ExportForm:
    """The options of exported sources."""

    target: str = ""
    """The name of a target; empty: the package's default, or this machine."""
    name: str = "model"
    weights: str = ""
    """The place of the constants; empty: the package's default, or `incbin`."""
    threads: int = 1
    malloc: bool = True
    train: bool = False
    """Whether the program is a step of training."""
    casadi: bool = False
    """Whether to write an external function for CasADi."""
    package: str = ""
    """The kind of package to write; empty: plain C."""
    version: str = "1.0.0"
    """The version of the package, and of the one for CMake."""
    optimize: str | None = None
    """The goal, see `Options.optimize`; None: size on microcontrollers, else speed."""


@dataclass(frozen=True)
class Vector:
    """
    A test vector: inputs, and the reference backend's outputs for them.

    In training, outputs are those after `Exporter.steps` steps on the same inputs.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    sizes: Sequence[int] = ()
    """The sizes of the call, in the order of the program's sizes."""


@dataclass(frozen=True)
class Trained:
    """The results of a trainer's own program after `Exporter.steps` steps."""

    outputs: Mapping[str, Array]
    variables: Mapping[str, Array]


@dataclass(frozen=True)
class Step:
    """A training step, besides the program that runs it."""

    weights: tuple[str, ...]
    """The variables that devices exchange: trained weights and running statistics."""
    period: int = 1
    """Runs of the program per update of the weights."""
    counter: str = ""
    """The variable that counts the runs since the last update; "" if each run updates."""
    update: ModuleOp | None = None
    """The program of the update, without inputs and outputs; None if each run updates."""
    is_mean: bool = True
    """Whether an update takes the mean of the gradients of its runs, not their sum."""
    accumulators: tuple[str, ...] = ()
    """The variables that hold the sums of gradients."""
    clips: bool = False
    """Whether an update scales all gradients by their common norm."""
    recomputes: bool = False
    """Whether the backward pass recomputes activations."""
    trained: Trained | None = None
    """The results that the exported check requires bit by bit on this machine, if known."""
    boxes: Mapping[str, Box] = field(default_factory=dict)
    """The parts of weights that steps change, where that is not all."""


@dataclass(frozen=True)
class Function:
    """A further function of an exported model, such as a derivative or, with a step, `run`."""

    name: str
    """Its name after the model's prefix: `jvp` for `model_jvp`."""
    about: str
    """One sentence on its results."""
    module: ModuleOp
    """A module that has gone through all passes, with the program `main`."""
    weights: WeightStore
    vector: Vector


@dataclass(frozen=True)
class Exported:
    """The contents of files by name, and the memory that the program requires."""

    files: Files
    rom: int
    """Bytes of constants, without code."""
    ram: int
    use: str
    """A table of the use of memory, for people."""


class Exporter(Protocol):
    """An exporter of sources with an interface, for one target."""

    @property
    def machine(self) -> Machine:
        """The machine that passes optimize for."""

    @property
    def optimize(self) -> str:
        """The goal of the program, see `Options.optimize`."""

    @property
    def is_here(self) -> bool:
        """Whether the target is this machine, so that schedules measured here apply."""

    @property
    def adds_run(self) -> bool:
        """Whether a training step is exported with the function `run`, unless asked for."""

    def steps(self, period: int = 1) -> int:
        """The number of runs of the exported check before it compares outputs."""

    def export(
        self,
        module: ModuleOp,
        weights: WeightStore,
        vectors: Sequence[Vector],
        functions: Sequence[Function] = (),
        step: Step | None = None,
    ) -> Exported:
        """
        The sources of the program `main`, and a check that runs it on test vectors.

        A form that trains requires a `step`, whose update shares the variables of `main`.

        The other functions share its memory and constants. Beside a training step, their variables
        are those of the step by name; else, BackendError if there are sizes or state.

        A program with sizes has several vectors, the first at the bounds. The inputs of the
        others are the fronts of its inputs.
        """


class Tools(Protocol):
    """A backend's code as text, its profiles and its exports. A module may implement it."""

    def kernels(self, module: ModuleOp) -> Sequence[KernelText]:
        """The kernels of a module that has gone through all passes."""

    def sources(self, module: ModuleOp, *, threads: int | None = None) -> dict[str, str]:
        """The translation units and headers (`*.h`) by file name."""

    def emit(self, module: ModuleOp, weights: WeightStore, *, threads: int | None = None) -> Files:
        """The sources, the initial contents of memory, and a description of the pointer table."""

    def profile(self, module: ModuleOp, weights: WeightStore, threads: int = 1) -> Profile:
        """The program, prepared for timing."""

    def exporter(self, form: ExportForm) -> Exporter:
        """The exporter for these options; BackendError if one is not supported."""

    def keep_measured(self, rows: Iterable[Row]) -> Path:
        """Stores measured schedules for all later compilations on this machine."""
