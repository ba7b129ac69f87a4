"""The `.pgraph` language: `parse` and `load` give the document that a text means."""

from __future__ import annotations

from popgraph.builder.dsl.added_loss import add_loss
from popgraph.builder.dsl.array_files import write_safetensors
from popgraph.builder.dsl.document import Document, load, parse, parse_optimizer
from popgraph.builder.dsl.from_module import text_of
from popgraph.builder.dsl.from_values import WeightFile
from popgraph.builder.dsl.listing import Listing, listing
from popgraph.builder.dsl.schedules import Schedule
from popgraph.builder.dsl.training import OptimizerCall, TrainingSection

__all__ = [
    "Document",
    "Listing",
    "OptimizerCall",
    "Schedule",
    "TrainingSection",
    "WeightFile",
    "add_loss",
    "listing",
    "load",
    "parse",
    "parse_optimizer",
    "text_of",
    "write_safetensors",
]
