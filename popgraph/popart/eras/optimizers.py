"""PopONNX's optimizers: two numbers that can be asked for."""

from __future__ import annotations

from typing import ClassVar

from popgraph.popart.api import optimizers as modern
from popgraph.popart.eras.era import PLAIN_POPONNX, Era


class BaseSGD(modern.SGD):
    """What `SGD` and `ConstSGD` had in common."""

    ERA: ClassVar[Era] = PLAIN_POPONNX

    def _insists_on_learning(self) -> bool:
        return self.ERA.checked

    def learnRate(self) -> float:
        return self._maps["learningRate"].default.val()

    def weightDecay(self) -> float:
        return self._maps["weightDecay"].default.val()


class SGD(BaseSGD):
    """`SGD(learning_rate, weight_decay)`, both of which may change later."""


class ConstSGD(modern.ConstSGD, BaseSGD):
    """`ConstSGD(learning_rate, weight_decay)`, which never change."""
