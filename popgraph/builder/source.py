"""What builds a model call by call: the compiler reads it without knowing its interface."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.program import WeightStore


class ModelSource(ABC):
    """Gives a module of the onnx level, and holds its weights."""

    weights: WeightStore

    @abstractmethod
    def module(self) -> ModuleOp:
        """The model as it is built so far."""
