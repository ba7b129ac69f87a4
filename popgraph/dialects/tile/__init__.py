"""The tile dialect: how things are computed, from index maps to kernels in one arena."""

from __future__ import annotations

from xdsl.ir import Dialect

from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.dialects.tile.chain import ChainOp, TurnsAttr
from popgraph.dialects.tile.cut import CutAttr
from popgraph.dialects.tile.lanes import CompareOp, ConvertOp, PrefetchOp, RemainderOp, SelectOp
from popgraph.dialects.tile.nest import Nested, NestOp
from popgraph.dialects.tile.program import BufferOp, CallOp, KernelOp, LaunchOp, ProgramOp
from popgraph.dialects.tile.structured import (
    AssembleOp,
    ContractOp,
    ElementOp,
    IndexOp,
    MapOp,
    PackOp,
    ReduceOp,
    ScatterOp,
    Structured,
    UnpackOp,
    ViewOp,
    YieldOp,
)
from popgraph.dialects.tile.winograd import (
    TransformGradientTilesOp,
    TransformTilesOp,
    WinogradOp,
)

TILE = Dialect(
    "tile",
    [
        AssembleOp,
        BufferOp,
        CallOp,
        ChainOp,
        CompareOp,
        PrefetchOp,
        ContractOp,
        ConvertOp,
        ElementOp,
        IndexOp,
        KernelOp,
        LaunchOp,
        MapOp,
        NestOp,
        PackOp,
        ProgramOp,
        ReduceOp,
        RemainderOp,
        ScatterOp,
        SelectOp,
        TransformGradientTilesOp,
        TransformTilesOp,
        UnpackOp,
        ViewOp,
        WinogradOp,
        YieldOp,
    ],
    [CutAttr, LayoutAttr, ScheduleAttr, TurnsAttr],
)

__all__ = [
    "TILE",
    "AssembleOp",
    "BufferOp",
    "CallOp",
    "ChainOp",
    "CompareOp",
    "PrefetchOp",
    "ContractOp",
    "ConvertOp",
    "ElementOp",
    "IndexOp",
    "KernelOp",
    "LaunchOp",
    "CutAttr",
    "LayoutAttr",
    "MapOp",
    "NestOp",
    "Nested",
    "PackOp",
    "ProgramOp",
    "ReduceOp",
    "RemainderOp",
    "ScatterOp",
    "ScheduleAttr",
    "SelectOp",
    "Structured",
    "TransformGradientTilesOp",
    "TransformTilesOp",
    "UnpackOp",
    "ViewOp",
    "WinogradOp",
    "YieldOp",
]
