"""The warning classes: what a user should know of a model that runs."""

from __future__ import annotations


class PopgraphWarning(UserWarning):
    """Something works, but not as well as it could."""


class ManyProgramsWarning(PopgraphWarning):
    """An input that decides structure has brought so many values that compiling takes the time."""


class UntrainedWeightsWarning(PopgraphWarning):
    """Weights are to be trained, and stay what they are: no gradient reaches them."""
