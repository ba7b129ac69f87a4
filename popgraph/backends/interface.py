"""The interface of backends: what one gives, to compile programs and to keep them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from popgraph.backends.base import Executable
from popgraph.support.errors import BackendError, PopgraphError
from popgraph.support.files import State, is_unchanged
from popgraph.support.sizes import Size

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.backends.tools import Tools
    from popgraph.dialects.program import WeightStore
    from popgraph.dialects.tile.loops.known import KnownKernels
    from popgraph.support.machine import Machine
    from popgraph.support.warnings import Notice

MOST_THREADS = 1024
"""The limit of the C runtime's pool (POPGRAPH_RANGES in pool.h); no machine has more cores."""


def check_threads(threads: int) -> None:
    """BackendError for a number of threads that no program can run on."""
    if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
        raise BackendError(
            f"{threads!r} threads cannot run a program", hint=f"1 to {MOST_THREADS}; 1 starts none"
        )


@dataclass(frozen=True)
class Key:
    """The key of a program in a backend's cache: everything that its compilation depends on."""

    digest: str


class Case(NamedTuple):
    """The module that another was made of, by giving its inputs their shapes and values."""

    text: Callable[[], str]
    """The text of that module, see `Backend.spelled`."""
    given: str


@dataclass(frozen=True)
class KnownModel:
    """An open model whose file was read before. This one knows none of its programs."""

    threads: int
    interface: Mapping[str, tuple[Any, ...]]
    """The names of its inputs, by their role, and its unknown dimensions."""
    files: Mapping[str, Sequence[int]]
    """The files that were read, and their states at that time."""
    overridable: tuple[str, ...] = ()
    """The initializers for which a call may bring other values."""

    def recall(self, signature: object) -> Executable | None:
        """The program for calls of this signature."""
        return None

    def undecided(self, signature: object) -> tuple[str, ...]:
        """The inputs whose values such calls must say, too, before they have a program."""
        return ()

    def note_undecided(self, signature: object, names: Sequence[str]) -> None:
        """Keeps that calls of this signature have no program of their own."""

    def remember(self, signature: object, program: Executable) -> None:
        """Keeps the way to a program."""

    def is_unchanged(self) -> bool:
        """Whether the files are unchanged since they were read."""
        return is_unchanged(self.files)


@dataclass(frozen=True)
class KnownProgram:
    """The only program of a model whose file was read before."""

    program: Executable
    files: Mapping[str, Sequence[int]]
    """The files that were read, and their states at that time."""
    overridable: tuple[str, ...]


@dataclass(frozen=True)
class KnownCall:
    """A call of an open model's file for which the cache has a program."""

    shapes: Mapping[str, Sequence[int]]
    values: Mapping[str, Any]
    """The numbers of structural inputs."""
    threads: int
    sizes: tuple[Size, ...] = ()
    """The sizes that calls of the same program bring; the shapes are those of their bounds."""


class Shortcuts(Protocol):
    """The ways from files of models to programs in a cache. A module may be one."""

    def recall(
        self, model: object, options: object, threads: int, indices: str | None = None
    ) -> KnownProgram | KnownModel | None:
        """The outcome of an earlier compilation, if all that it depends on is unchanged."""
        return None

    def remember(
        self,
        model: object,
        options: object,
        threads: int,
        program: Executable,
        files: Mapping[Path, State],
        indices: str | None = None,
        overridable: Collection[str] = (),
    ) -> None:
        """Keeps the way from a model's file to its program; `files` are all that were read."""
        return

    def remember_open(
        self,
        model: object,
        options: object,
        threads: int,
        files: Mapping[Path, State],
        indices: str | None,
        interface: Mapping[str, tuple[Any, ...]],
        overridable: Collection[str] = (),
    ) -> KnownModel:
        """Keeps the interface of an open model, to find its programs by their signatures."""
        rows = {str(name): state for name, state in files.items()}
        return KnownModel(threads, interface, rows, tuple(sorted(overridable)))

    def note_call(
        self, model: object, files: Mapping[Path, State], call: KnownCall, program: Executable
    ) -> None:
        """Notes, for people to see, that the cache has a program for a call."""
        return

    def known_calls(self, model: Path) -> list[KnownCall]:
        """The calls of a file, in its present state, for which the cache has programs."""
        return []

    def standing(self) -> tuple[object, ...]:
        """Everything that shortcuts depend on but for the model, the options and the code."""
        return ()


class NoShortcuts(Shortcuts):
    """The shortcuts of a backend that keeps no programs."""


@dataclass(frozen=True)
class Health:
    """The state of a backend on this machine, as `popgraph doctor` prints it."""

    rows: Sequence[tuple[str, ...]] = ()
    trouble: PopgraphError | None = field(default=None)
    """Why the backend cannot work."""


class Backend(ABC):
    """
    A way to run modules: lowers them for a machine, to a level, and makes executables of them.

    A backend must have a name and `build`. Its instance is registered with `add_backend`.
    """

    name: ClassVar[str]
    """The name that `compile(backend=...)` and `--backend` take."""
    level: ClassVar[str] = "program"
    """The level to which modules are lowered before `build`."""
    runs_to_sizes: ClassVar[bool] = False
    """Whether its executables run modules with `sizes`, for any of these up to their bounds."""
    is_native: ClassVar[bool] = False
    """
    Whether it compiles to `NativeExecutable`s.

    The engine splits a training between several of those, which share variables, and a quick one
    may run while the tuned one is compiled.
    """

    @abstractmethod
    def build(
        self,
        module: ModuleOp,
        weights: WeightStore,
        *,
        threads: int = 1,
        key: Key | None = None,
        notices: Sequence[Notice] = (),
        soon: bool = False,
        known: KnownKernels | None = None,
    ) -> Executable:
        """
        The executable of a module of `level`.

        It is kept under the `key`, with the `notices` that its user has read, if the backend has a
        cache. One that is wanted `soon` should be compiled fast, and is not kept. Functions of the
        module without a body are kernels that `known_kernels` had found for the passes.
        """

    def machine(self) -> Machine | None:
        """The machine that passes decide for; None: no decision depends on it."""
        return None

    def measured(self) -> tuple[str, ...]:
        """The overrides of schedules that were measured on this machine."""
        return ()

    def key(
        self, module: ModuleOp, passes: Sequence[object], case: Case | None = None
    ) -> Key | None:
        """The key of the program that `passes` would make of a module; None: it is not kept."""
        return None

    def known_kernels(self) -> KnownKernels | None:
        """The kernels of earlier programs, which passes need not write again; None: no store."""
        return None

    def spelled(self, module: ModuleOp) -> str:
        """The text by which keys distinguish modules that become different programs."""
        return str(module)

    def build_again(
        self, key: Key, weights: WeightStore, threads: int = 1, *, is_told: bool = False
    ) -> Executable | None:
        """The executable that was kept under a key; who `is_told` has read its notices."""
        return None

    @property
    def shortcuts(self) -> Shortcuts:
        """The ways from files of models to its programs, which need neither passes nor xDSL."""
        return NoShortcuts()

    @property
    def tools(self) -> Tools:
        """Its answers to `measure`, `viewer` and the commands that show or write code."""
        raise BackendError(
            f"the backend {self.name!r} can neither show, measure nor export its code",
            hint="use --backend c",
        )

    def health(self) -> Health:
        """Its state on this machine."""
        return Health()
