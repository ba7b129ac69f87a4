"""Exports a trained model, and imports weights from another model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from popgraph.builder.onnx.conversions import keep_inputs, keep_nodes
from popgraph.builder.onnx.external import FileRange
from popgraph.builder.onnx.external_weights import copy_weights, exported, overwrite
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.passes.replication import belongs
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import popart_runtime_error
from popgraph.popart.model.grouped_weights import take_groups
from popgraph.popart.model.model import SessionModel, Source, open_model
from popgraph.support.arrays import Array
from popgraph.training.trained_weights import put_weights


def weights_of(source: Source, options: SessionOptions | None = None) -> dict[str, Array]:
    """{name: weight} of a model; grouped weights have a leading axis for groups."""
    model, grouped = take_groups(source, options)
    module, weights = open_model(model)
    initializers = weights_by_name(model_of(module).graph)
    found = {name: op.array(weights) for name, op in initializers.items()}
    return found | {name: one.first for name, one in grouped.items()}


def model_with_weights(
    model: SessionModel, weights: Mapping[str, Array], external: Mapping[str, FileRange]
) -> bytes:
    """
    The model with these weights; optimizer states are added as initializers.

    Losses given to the session are excluded. Weights keep the field that stored them; states use
    typed fields such as `float_data`, which PopART programs read. External weights are written to
    their files.
    """
    module = model.module.clone()
    put_weights(module, weights, model.weights)
    message = exported(module, model.weights, external)
    keep_nodes(
        message.graph, lambda node: not node.output or not model.added.issuperset(node.output)
    )
    keep_inputs(message.graph, lambda name: name not in model.added)
    overwrite(external, {id: weights[id].tobytes() for id in external if id in weights})
    return bytes(message.SerializeToString())


def places_of_states(
    weights: Mapping[str, Array], external: Mapping[str, FileRange]
) -> dict[str, FileRange]:
    """Locations for states of external weights, appended to the same files."""
    ends = {one.path: one.path.stat().st_size for one in external.values()}
    found = {}
    for id in sorted(weights.keys() - external.keys()):
        weight = next((one for one in external if belongs(id, one)), None)
        if weight is not None:
            place = external[weight]
            size = weights[id].nbytes
            found[id] = replace(place, offset=ends[place.path], length=size)
            ends[place.path] += size
    return found


def relocated(places: Mapping[str, FileRange], source: str, target: str) -> dict[str, FileRange]:
    """Copies the external weights in one file to another, and returns their new locations."""
    update = f"Updating externally saved tensor location from file '{source}' to file '{target}'"
    where = "updateExternallySavedTensorLocations"
    if Path(target).exists():
        raise popart_runtime_error(f"{update}, but file '{target}' already exists", where)
    if not Path(source).exists():
        raise popart_runtime_error(f"{update}, but file '{source}' does not exist", where)
    moved = {id: place for id, place in places.items() if place.location == source}
    if not moved:
        raise popart_runtime_error(
            f"No ONNX model initializers have external location set to '{source}'", where
        )
    return copy_weights(moved, target)
