"""The `.pgraph` language: `parse` and `load` give the document that a text means."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popgraph.builder.dsl.added_loss import add_loss as add_loss
    from popgraph.builder.dsl.array_files import safetensors as safetensors
    from popgraph.builder.dsl.document import Document as Document
    from popgraph.builder.dsl.document import load as load
    from popgraph.builder.dsl.document import parse as parse
    from popgraph.builder.dsl.document import parse_optimizer as parse_optimizer
    from popgraph.builder.dsl.from_module import text_of as text_of
    from popgraph.builder.dsl.from_values import WeightFile as WeightFile
    from popgraph.builder.dsl.listing import Listing as Listing
    from popgraph.builder.dsl.schedules import Schedule as Schedule
    from popgraph.builder.dsl.training import OptimizerCall as OptimizerCall
    from popgraph.builder.dsl.training import TrainingSection as TrainingSection

_MODULES = {
    "added_loss": "add_loss",
    "array_files": "safetensors",
    "document": "Document load parse parse_optimizer",
    "from_module": "text_of",
    "from_values": "WeightFile",
    "listing": "Listing",
    "schedules": "Schedule",
    "training": "OptimizerCall TrainingSection",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Imports a name when it is first used: other models than texts need no parser."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
