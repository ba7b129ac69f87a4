"""The emitters that few programs need, imported with the first operation that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xdsl.ir import Operation

from popgraph.dialects import tile
from popgraph.passes.structured.to_loops.copy.exchange import (
    FinishExchangeLoops,
    StartExchangeLoops,
)
from popgraph.passes.structured.to_loops.elementwise.order import OrderLoops
from popgraph.passes.structured.to_loops.elementwise.positions import (
    CompressLoops,
    PositionsLoops,
)
from popgraph.passes.structured.to_loops.elementwise.scatter import ScatterLoops
from popgraph.passes.structured.to_loops.elementwise.segments import SegmentsLoops
from popgraph.passes.structured.to_loops.elementwise.suppress import SuppressLoops
from popgraph.passes.structured.to_loops.elementwise.top_k import TopKLoops
from popgraph.passes.structured.to_loops.emit.emitter import Emitter
from popgraph.passes.structured.to_loops.winograd.tile_transforms import TransformLoops
from popgraph.passes.structured.to_loops.winograd.winograd import WinogradLoops
from popgraph.support.tuning import Target

RARE: Mapping[type[Operation], Callable[[Any, Target], Emitter]] = {
    tile.ScatterOp: ScatterLoops,
    tile.TopKOp: TopKLoops,
    tile.PositionsOp: PositionsLoops,
    tile.CompressOp: CompressLoops,
    tile.SuppressOp: SuppressLoops,
    tile.OrderOp: OrderLoops,
    tile.SegmentsOp: SegmentsLoops,
    tile.FusedOp: WinogradLoops,
    tile.TransformTilesOp: TransformLoops,
    tile.StartExchangeOp: StartExchangeLoops,
    tile.FinishExchangeOp: FinishExchangeLoops,
}
"""The emitter of each operation; a `tile.fused` is one that transforms tiles."""
