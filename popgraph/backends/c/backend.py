"""The entry point of the C backend for the registry; imports its packages on demand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from popgraph.backends.interface import Backend, Case, Health, Key, Shortcuts
from popgraph.backends.registry import add_backend

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.backends.base import Executable
    from popgraph.backends.tools import Tools
    from popgraph.dialects.program import WeightStore
    from popgraph.dialects.tile.loops.known import KnownKernels
    from popgraph.support.machine import Machine
    from popgraph.support.warnings import Notice


class CBackend(Backend):
    """The backend that prints a planned program as C, compiles it, and calls the library."""

    name = "c"
    is_native = True
    runs_to_sizes = True

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
        from popgraph.backends.c.build.known_kernels import KernelCache
        from popgraph.backends.c.build_program import build
        from popgraph.backends.c.cache.program_cache import ProgramKey

        assert key is None or isinstance(key, ProgramKey), "it is a key of this backend"
        assert known is None or isinstance(known, KernelCache), "it is the cache of this backend"
        return build(
            module,
            weights,
            threads,
            save_as=key,
            notices=notices,
            soon=soon,
            cache=known,
            consumes=consumes,
        )

    def machine(self) -> Machine:
        from popgraph.backends.c.build.host import host_machine

        return host_machine()

    def measured(self) -> tuple[str, ...]:
        from popgraph.backends.c.cache.measured_schedules import measured

        return measured()

    def key(
        self, module: ModuleOp, passes: Sequence[object], case: Case | None = None
    ) -> Key | None:
        from popgraph.backends.c.cache.program_key import program_key

        return program_key(module, passes, case)

    def known_kernels(self) -> KnownKernels | None:
        from popgraph.backends.c.build.known_kernels import kernel_cache

        return kernel_cache()

    def expecting(self, weights: WeightStore, size: int) -> AbstractContextManager[None]:
        from popgraph.backends.c.memory.pages import reserving

        return reserving(weights.shared, size)

    def spelled(self, module: ModuleOp) -> str:
        from popgraph.backends.c.cache.program_key import spelled

        return spelled(module)

    def load_cached(
        self, key: Key, weights: WeightStore, threads: int = 1, *, is_told: bool = False
    ) -> Executable | None:
        from popgraph.backends.c.cache.program_cache import ProgramKey
        from popgraph.backends.c.run.sized import load_cached

        assert isinstance(key, ProgramKey), "it is a key of this backend"
        return load_cached(key, weights, threads, is_told=is_told)

    @property
    def shortcuts(self) -> Shortcuts:
        from popgraph.backends.c.run import warm_start

        return warm_start

    @property
    def tools(self) -> Tools:
        from popgraph.backends.c import tools

        return tools

    def health(self) -> Health:
        from popgraph.backends.c.build.health import health

        return health()


add_backend(CBackend())
