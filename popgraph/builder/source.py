"""The interface between model builders and the compiler."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.program import WeightStore


class ModelSource(ABC):
    """Provides a module of the onnx level and its weights."""

    weights: WeightStore

    @abstractmethod
    def module(self) -> ModuleOp:
        """The model as built so far."""
