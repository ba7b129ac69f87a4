"""PopART's `InputSettings`: stream placement of an input, kept but without effect."""

from __future__ import annotations

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import ExchangeStrategy, ReplicatedStreamMode, TileSet


@typed
class InputSettings:
    """Placement of one input's stream."""

    def __init__(
        self,
        tileSet: TileSet | ReplicatedStreamMode = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
        *,
        relicatedStreamMode: ReplicatedStreamMode = ReplicatedStreamMode.Replicate,
    ) -> None:
        if isinstance(tileSet, ReplicatedStreamMode):
            relicatedStreamMode = tileSet
        self._tile_set = tileSet if isinstance(tileSet, TileSet) else TileSet.Compute
        self._exchange = exchangeStrategy
        self._mode = relicatedStreamMode

    def tileSet(self) -> TileSet:
        return self._tile_set

    def exchangeStrategy(self) -> ExchangeStrategy:
        return self._exchange

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        return self._mode
