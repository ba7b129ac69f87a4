"""The interface of backends: compilation, caching, and services of this machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
    """Raises BackendError for an unsupported number of threads."""
    if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
        raise BackendError(
            f"{threads!r} threads cannot run a program",
            hint=f"use 1 to {MOST_THREADS}; 1 starts no thread",
        )


@dataclass(frozen=True)
class Key:
    """The key of a program in a backend's cache: everything that its compilation depends on."""

    digest: str


class Case(NamedTuple):
    """The module that a module was specialized from, and the given shapes and values."""

    text: Callable[[], str]
    """The text of that module, see `Backend.spelled`."""
    given: str


@dataclass(frozen=True)
class KnownModel:
    """A cached interface of a model with open shapes; this base class has no programs."""

    threads: int
    interface: Mapping[str, tuple[Any, ...]]
    """The names of its inputs, by their role, and its unknown dimensions."""
    files: Mapping[str, Sequence[int]]
    """The files that were read, and their states at that time."""
    overridable: tuple[str, ...] = ()
    """The initializers that a call may override."""

    def recall(self, signature: object) -> Executable | None:
        """The cached program for calls of this signature, if any."""
        return None

    def undecided(self, signature: object) -> tuple[str, ...]:
        """The inputs whose values the signature must include, too, to select a program."""
        return ()

    def note_structural(self, signature: object, names: Sequence[str]) -> None:
        """Records that calls of this signature are selected by these inputs' values, too."""

    def remember(self, signature: object, program: Executable) -> None:
        """Records the program of a signature."""

    def is_unchanged(self) -> bool:
        """Whether the files are unchanged since they were read."""
        return is_unchanged(self.files)


@dataclass(frozen=True)
class KnownProgram:
    """The cached program of a model with static shapes."""

    program: Executable
    files: Mapping[str, Sequence[int]]
    """The files that were read, and their states at that time."""
    overridable: tuple[str, ...]


@dataclass(frozen=True)
class KnownCall:
    """A call of an open model for which the cache has a program."""

    shapes: Mapping[str, Sequence[int]]
    values: Mapping[str, Any]
    """The values of structural inputs."""
    threads: int
    sizes: tuple[Size, ...] = ()
    """The sizes that calls of this program may choose; `shapes` are at their bounds."""


class Shortcuts(Protocol):
    """Lookups from model files to cached programs. A module may implement it."""

    def recall(
        self, model: object, options: object, threads: int, indices: str | None = None
    ) -> KnownProgram | KnownModel | None:
        """The result of an earlier compilation, if everything it depends on is unchanged."""
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
        """Records the program of a model file; `files` are all files that were read."""
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
        """Records the interface of an open model, whose programs are found by signature."""
        rows = {str(name): state for name, state in files.items()}
        return KnownModel(threads, interface, rows, tuple(sorted(overridable)))

    def note_call(
        self, model: object, files: Mapping[Path, State], call: KnownCall, program: Executable
    ) -> None:
        """Records for display that the cache has a program for a call."""
        return

    def known_calls(self, model: Path) -> list[KnownCall]:
        """The calls of the current version of a file for which the cache has programs."""
        return []

    def standing(self) -> tuple[object, ...]:
        """Everything that shortcuts depend on besides the model, the options and the code."""
        return ()


class NoShortcuts(Shortcuts):
    """The shortcuts of a backend that keeps no programs."""


@dataclass(frozen=True)
class Health:
    """The state of a backend on this machine, as `popgraph doctor` prints it."""

    rows: Sequence[tuple[str, ...]] = ()
    trouble: PopgraphError | None = field(default=None)
    """The reason why the backend cannot work."""


class Backend(ABC):
    """
    A compilation target: builds executables from modules that are lowered to its level.

    A backend must have a name and `build`. Its instance is registered with `add_backend`.
    """

    name: ClassVar[str]
    """The name that `compile(backend=...)` and `--backend` take."""
    level: ClassVar[str] = "program"
    """The level to which modules are lowered before `build`."""
    runs_to_sizes: ClassVar[bool] = False
    """Whether its executables run modules with `sizes`, for all values up to their bounds."""
    is_native: ClassVar[bool] = False
    """
    Whether it compiles to `NativeExecutable`s.

    The engine splits training into several of them, which share variables. A quickly compiled
    one may run while the optimized one is compiled.
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
        consumes: bool = False,
    ) -> Executable:
        """
        Builds the executable of a module of `level`.

        If the backend has a cache, the result is stored under `key`, with the `notices` that the
        user has read. With `soon`, compile time matters most.
        Functions without a body are kernels that `known_kernels` found for the passes. If it
        `consumes` the module, the backend may remove operations, so that they are freed early.
        """

    def machine(self) -> Machine | None:
        """The machine that passes optimize for; None: no decision depends on it."""
        return None

    def measured(self) -> tuple[str, ...]:
        """The overrides of schedules that were measured on this machine."""
        return ()

    def key(
        self, module: ModuleOp, passes: Sequence[object], case: Case | None = None
    ) -> Key | None:
        """The key of the program that `passes` would produce from a module; None: not cached."""
        return None

    def known_kernels(self) -> KnownKernels | None:
        """The cached kernels of earlier programs, which passes can reuse; None: no cache."""
        return None

    def expecting(self, weights: WeightStore, size: int) -> AbstractContextManager[None]:
        """
        A context in which a module is lowered and built, with about `size` bytes of constants.

        The backend can prepare for them while passes run.
        """
        return nullcontext()

    def spelled(self, module: ModuleOp) -> str:
        """A text of the module for keys: it differs if the programs may differ."""
        return str(module)

    def load_cached(
        self, key: Key, weights: WeightStore, threads: int = 1, *, is_told: bool = False
    ) -> Executable | None:
        """The executable cached under a key; repeats its notices unless `is_told`."""
        return None

    @property
    def shortcuts(self) -> Shortcuts:
        """Lookups from model files to its programs, which import neither passes nor xDSL."""
        return NoShortcuts()

    @property
    def tools(self) -> Tools:
        """The tools for `measure`, `viewer` and the commands that show or export code."""
        raise BackendError(
            f"the backend {self.name!r} cannot show, measure or export code",
            hint="use --backend c",
        )

    def health(self) -> Health:
        """The state of the backend on this machine."""
        return Health()
