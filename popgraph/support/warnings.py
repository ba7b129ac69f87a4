"""The warning classes: what a user should know of a model that runs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass


class PopgraphWarning(UserWarning):
    """Something works, but not as well as it could."""


class ManyProgramsWarning(PopgraphWarning):
    """Inputs have brought so many values or sizes that compiling takes the time."""


class UntrainedWeightsWarning(PopgraphWarning):
    """Weights are to be trained, and stay what they are: no gradient reaches them."""


class DoubtfulTrainingWarning(PopgraphWarning):
    """A training goes on that can hardly learn what it is meant to learn."""


class UntunedProgramWarning(PopgraphWarning):
    """A quick program goes on, since no tuned one could be built in the background."""


class NoCacheWarning(PopgraphWarning):
    """A language model runs without its cache, since the results would not be the same with it."""


KINDS = {kind.__name__: kind for kind in PopgraphWarning.__subclasses__()}
"""By the names by which files know them."""


@dataclass(frozen=True)
class Notice:
    """A warning of a model, which is given again whenever its program starts."""

    kind: type[PopgraphWarning]
    text: str

    def give(self) -> None:
        """Warns."""
        warnings.warn(self.text, self.kind, stacklevel=3)
