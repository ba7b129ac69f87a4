"""A graph of operators as the JSON that PopART's serializer writes."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence

from popgraph.builder.opset.enums import RecomputeType
from popgraph.dialects.onnx.annotations import (
    IPU,
    MEMORY,
    PARTIALS,
    SERIALIZED,
    SERIALIZED_FACTOR,
    SERIALIZED_PRECISION,
    STAGE,
)
from popgraph.dialects.onnx.annotations import PHASE as EXECUTION_PHASE
from popgraph.session.popart_ir.graph import Context, Op, OpGraph, words
from popgraph.session.popart_ir.layers import place_of
from popgraph.session.popart_ir.matmuls import FORWARD, LEFT, NO_PASS, PHASE, RIGHT
from popgraph.session.popart_ir.placement import COPY

_OWN = "popgraph."
"""What attributes begin with that are only ours."""

_PHASES = {FORWARD: 0, LEFT: 1, RIGHT: 2}

_NAMES = {
    "reduction": "reduction_type",
    MEMORY: "available_memory_proportion",
    PARTIALS: "partialsType",
    "ignoreIndex": "ignore_index",
    "inputIsLogProbability": "input_is_log_probability",
}
"""Attributes whose names in the IR are not those in models."""

_MEMORY_OF = {
    **dict.fromkeys(words("Gather GatherGrad GroupedGather PopartTiedGather TopK"), MEMORY),
    **dict.fromkeys(words("Scatter ScatterElements"), MEMORY),
    **dict.fromkeys(words("Conv ConvDataGrad ConvWeightsGrad"), "availableMemoryProportion"),
}
"""How operators of a type call the memory that they may take, where that is not the name."""

_MODES = ["none", "input_channels", "reducing_dim", "output_channels"]
_HIDDEN = frozenset(
    [PARTIALS, SERIALIZED, SERIALIZED_FACTOR, SERIALIZED_PRECISION, "__output_type"]
)
"""Attributes of products that they tell in other words, or not at all."""

_REDUCTIONS = {"Sum": "0", "Mean": "1", "None": "2"}


def serialised(graphs: Mapping[str, Sequence[Op]], infos: Mapping[str, OpGraph]) -> str:
    """The operators of each graph in their order; every value is a text."""
    content = {name: [_operator(infos[name], op) for op in ops] for name, ops in graphs.items()}
    return json.dumps(content)


def _operator(graph: OpGraph, op: Op) -> dict[str, object]:
    return {
        "type": op.type,
        "name": op.settings.name,
        "inputs": [_input(graph, index, id) for index, id in sorted(op.inputs.items())],
        "outputs": [{"name": id, "index": str(index)} for index, id in sorted(op.outputs.items())],
        "attributes": dict(_attributes(graph, op)),
    }


def _input(graph: OpGraph, index: int, id: str) -> dict[str, str]:
    info = graph.infos[id]
    return {
        "name": id,
        "shape": _text(info.shape()),
        "type": info.data_type(),
        "index": str(index),
    }


def _attributes(graph: OpGraph, op: Op) -> Iterator[tuple[str, str]]:
    settings = op.settings
    yield "recompute", "YES" if settings.recompute is RecomputeType.Recompute else "NO"
    place = place_of(settings)
    if place is not None and op.type != COPY:  # a copy is on two of them
        yield IPU, str(place)
    yield "tileSet", str(int(settings.tiles))
    for key, value in settings.outline.items():
        yield key, f"{key}:{value}"
    if settings.phase is not None:
        yield EXECUTION_PHASE, str(settings.phase)
    inside = settings.context is Context.NORMAL and graph.scope
    yield "__execution_context", "Subgraph" if inside else settings.context.value
    if settings.stage is not None:
        yield STAGE, str(settings.stage)
    yield "scope", graph.scope
    yield "recomputetype", _recomputed(op)
    named = {**_NAMES, MEMORY: _MEMORY_OF.get(op.type, _NAMES[MEMORY])}
    for name, given in op.attributes.items():
        hidden = op.type == "MatMul" and name in _HIDDEN
        if not name.startswith(_OWN) and given is not None and not hidden:
            yield named.get(name, name), _reduction(name, given)
    if op.type == "MatMul":
        yield from _product(op)
    if op.called:
        names = ("callee",) if len(op.called) == 1 else ("else_branch", "then_branch")
        yield from zip(names, op.called, strict=False)
    yield "schedulePriority", _text(_single(settings.priority))


def _product(op: Op) -> Iterator[tuple[str, str]]:
    """What a product always tells."""
    phase = _PHASES[str(op.attributes.get(PHASE, FORWARD))]
    yield "fully_connected_pass", str(-1 if op.attributes.get(NO_PASS) else phase)
    partials = str(op.attributes.get(PARTIALS, "float")).upper()
    yield "partialsType", f"MatMulPartialsType::{partials}"
    yield "serialization_mode", str(_MODES.index(str(op.attributes.get(SERIALIZED, "none"))))
    yield "serialization_factor", str(op.integers_or(SERIALIZED_FACTOR, 0))


def _single(priority: float) -> float:
    """A number as single precision has it, where the largest are infinite."""
    return ctypes.c_float(priority).value


def _recomputed(op: Op) -> str:
    chosen = op.settings.recompute
    if op.backward and chosen is not RecomputeType.Recomputed:
        chosen = RecomputeType.Checkpoint
    return chosen.name


def _reduction(name: str, value: object) -> str:
    return _REDUCTIONS.get(str(value), _text(value)) if name == "reduction" else _text(value)


def _text(value: object) -> str:
    """A value as C++ streams write it."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6f}"
        case bytes():
            return value.decode(errors="replace")
        case list() | tuple():
            return (
                f"[{' '.join(f'{one:g}' if isinstance(one, float) else str(one) for one in value)}]"
            )
    return str(value)
