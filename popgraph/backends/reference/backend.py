"""The reference backend: NumPy on graphcore operations, in the place of compiled code."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.interface import Backend, Key
from popgraph.backends.reference.executable import ReferenceExecutable
from popgraph.backends.registry import add_backend
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile.loops.known import KnownKernels
from popgraph.support.warnings import Notice


class ReferenceBackend(Backend):
    """Runs graphcore operations by their meanings."""

    name = "reference"
    level = "graphcore"

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
    ) -> ReferenceExecutable:
        return ReferenceExecutable(module, weights)


add_backend(ReferenceBackend())
