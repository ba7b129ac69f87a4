"""Warning classes about models that run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass


class PopgraphWarning(UserWarning):
    """Something works, but not as well as it could."""


class ManyProgramsWarning(PopgraphWarning):
    """Inputs take too many values or sizes: compilation dominates the run time."""


class UntrainedWeightsWarning(PopgraphWarning):
    """Weights selected for training receive no gradient."""


class DoubtfulTrainingWarning(PopgraphWarning):
    """Training continues, but can hardly learn the task."""


class UntunedProgramWarning(PopgraphWarning):
    """The quick program continues, since the tuned one failed to build in the background."""


class NoCacheWarning(PopgraphWarning):
    """A language model runs without its KV cache, since results would differ with it."""


KINDS = {kind.__name__: kind for kind in PopgraphWarning.__subclasses__()}
"""{name in files: class}."""


@dataclass(frozen=True)
class Notice:
    """A warning of a model, repeated whenever its program starts."""

    kind: type[PopgraphWarning]
    text: str

    def give(self) -> None:
        """Emits the warning."""
        warnings.warn(self.text, self.kind, stacklevel=3)
