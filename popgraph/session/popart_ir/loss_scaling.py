"""How a loss scale follows the gradients: their histograms, and an update of its factor."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph, Settings

_FACTOR = "lossScaleUpdateFactor"
_COUNTS = TensorInfo("UINT32", [2])
"""How many elements are small, and how many are large."""

_AT_ONCE = Settings(priority=sys.float_info.max)


def follow_gradients(graph: OpGraph, scaling: str, tracked: Sequence[str]) -> None:
    """Adds a Histogram of each tracked gradient that is computed, and an update by their sum."""
    computed = [gradient for gradient in tracked if graph.producer(gradient) is not None]
    if not computed:
        return
    factor = graph.add_tensor(_FACTOR, TensorInfo("FLOAT", []), Kind.VARIABLE)
    scaled = graph.fresh(scaling, graph.infos[scaling])
    graph.replace_uses(scaling, scaled)
    graph.add(Op("Mul", {0: scaling, 1: factor}, {0: scaled}, backward=True), before=graph.ops[0])
    counts = [_histogram(graph, gradient) for gradient in computed]
    total = counts[0]
    if len(counts) > 1:
        total = graph.add_tensor("summedStatistics", _COUNTS)
        graph.add(Op("Sum", dict(enumerate(counts)), {0: total}, backward=True))
    updated = graph.add_tensor(f"{_FACTOR}__updated", TensorInfo("FLOAT", []))
    inputs = {0: factor, 1: total}
    graph.add(Op("LossScaleUpdate", inputs, {0: updated}, writes=True, backward=True))


def _histogram(graph: OpGraph, gradient: str) -> str:
    counts = graph.add_tensor(f"{gradient}_statistics", _COUNTS)
    attributes: dict[str, object] = {"absoluteOfInput": True}
    graph.add(Op("Histogram", {0: gradient}, {0: counts}, attributes, _AT_ONCE, backward=True))
    return counts
