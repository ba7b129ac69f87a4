"""The `.pgraph` language: `parse` and `load` compile a text to a document."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popgraph.builder.pgraph.lower.added_loss import add_loss as add_loss
    from popgraph.builder.pgraph.lower.document import Document as Document
    from popgraph.builder.pgraph.lower.document import load as load
    from popgraph.builder.pgraph.lower.document import parse as parse
    from popgraph.builder.pgraph.lower.document import parse_optimizer as parse_optimizer
    from popgraph.builder.pgraph.lower.document import parse_schedule as parse_schedule
    from popgraph.builder.pgraph.lower.schedules import Schedule as Schedule
    from popgraph.builder.pgraph.lower.training import OptimizerCall as OptimizerCall
    from popgraph.builder.pgraph.lower.training import TrainingSection as TrainingSection
    from popgraph.builder.pgraph.print.from_module import text_of as text_of
    from popgraph.builder.pgraph.print.from_values import WeightFile as WeightFile
    from popgraph.builder.pgraph.print.listing import Listing as Listing

_MODULES = {
    "lower.added_loss": "add_loss",
    "lower.document": "Document load parse parse_optimizer parse_schedule",
    "print.from_module": "text_of",
    "print.from_values": "WeightFile",
    "print.listing": "Listing",
    "lower.schedules": "Schedule",
    "lower.training": "OptimizerCall TrainingSection",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Imports a name on first use: other models need no parser."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
