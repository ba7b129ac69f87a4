"""The reference backend: evaluates graphcore operations in NumPy."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.interface import Backend
from popgraph.backends.reference.executable import ReferenceExecutable
from popgraph.backends.registry import add_backend
from popgraph.dialects.program import WeightStore


class ReferenceBackend(Backend):
    """Interprets graphcore operations without compiling."""

    name = "reference"
    level = "graphcore"

    def build(self, module: ModuleOp, weights: WeightStore, **wishes: Any) -> ReferenceExecutable:
        return ReferenceExecutable(module, weights)


add_backend(ReferenceBackend())
