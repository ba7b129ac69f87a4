"""The tile dialect: from operations with index maps to kernels in one arena."""

from __future__ import annotations

from xdsl.ir import Dialect

from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.dialects.tile.cut import CutAttr
from popgraph.dialects.tile.lanes import (
    ApartOp,
    CompareOp,
    ConvertOp,
    DotOp,
    ExpNonpositiveOp,
    PickOp,
    PrefetchOp,
    RemainderOp,
    SelectOp,
    SumPairsOp,
    ThreefryOp,
)
from popgraph.dialects.tile.loops.ops import LaunchOp
from popgraph.dialects.tile.loops.recipes import PrefetchAheadAttr, PrefetchNextAttr
from popgraph.dialects.tile.mapping import MappingAttr
from popgraph.dialects.tile.messages import ReceiveOp, SendOp
from popgraph.dialects.tile.program.ops import BufferOp, CallOp, ProgramOp
from popgraph.dialects.tile.program.program_control import (
    CondOp,
    LoopOp,
    PrepareProgramOp,
    RunsPrograms,
)
from popgraph.dialects.tile.running import RunningAttr
from popgraph.dialects.tile.structured.exchange import FinishExchangeOp, StartExchangeOp
from popgraph.dialects.tile.structured.fused import FusedOp, Member
from popgraph.dialects.tile.structured.layouts import AssembleOp, PackOp, ViewOp
from popgraph.dialects.tile.structured.ops import (
    ElementOp,
    IndexOp,
    MapOp,
    ScatterOp,
    Structured,
    TopKOp,
    YieldOp,
)
from popgraph.dialects.tile.structured.reduce import Blocks, ReduceOp, contraction, is_contraction
from popgraph.dialects.tile.structured.selection import (
    CompressOp,
    OrderOp,
    PositionsOp,
    SegmentsOp,
    SuppressOp,
)
from popgraph.dialects.tile.structured.winograd import MatrixAttr, TransformTilesOp

STRUCTURED = (
    AssembleOp,
    ElementOp,
    FinishExchangeOp,
    FusedOp,
    IndexOp,
    MapOp,
    OrderOp,
    PackOp,
    CompressOp,
    PositionsOp,
    ReduceOp,
    ScatterOp,
    SegmentsOp,
    StartExchangeOp,
    SuppressOp,
    TopKOp,
    TransformTilesOp,
    ViewOp,
    YieldOp,
)
"""Operations on tensors, with index maps for their reads."""

LOOPS = (LaunchOp,)
"""Launches of kernels with explicit loops, on tensors."""

PROGRAM = (BufferOp, CallOp, CondOp, LoopOp, PrepareProgramOp, ProgramOp)
"""Calls of functions on buffers."""

LANES = (
    ApartOp,
    CompareOp,
    ConvertOp,
    DotOp,
    ExpNonpositiveOp,
    PickOp,
    PrefetchOp,
    RemainderOp,
    SelectOp,
    SumPairsOp,
    ThreefryOp,
)
"""Scalar and vector operations that the stock dialects lack, for bodies and loops."""

MESSAGES = (ReceiveOp, SendOp)
"""Communication with other ranks from kernels."""

TILE = Dialect(
    "tile",
    [*STRUCTURED, *LOOPS, *PROGRAM, *LANES, *MESSAGES],
    [
        *(CutAttr, LayoutAttr, MappingAttr, MatrixAttr, PrefetchAheadAttr),
        *(PrefetchNextAttr, RunningAttr, ScheduleAttr),
    ],
)

__all__ = [
    "ApartOp",
    "LANES",
    "LOOPS",
    "MESSAGES",
    "PROGRAM",
    "STRUCTURED",
    "TILE",
    "AssembleOp",
    "Blocks",
    "BufferOp",
    "CallOp",
    "CompareOp",
    "CondOp",
    "PrefetchAheadAttr",
    "PrefetchNextAttr",
    "PrefetchOp",
    "ConvertOp",
    "DotOp",
    "ElementOp",
    "ExpNonpositiveOp",
    "FinishExchangeOp",
    "FusedOp",
    "IndexOp",
    "LaunchOp",
    "CutAttr",
    "LayoutAttr",
    "LoopOp",
    "MapOp",
    "MappingAttr",
    "MatrixAttr",
    "Member",
    "OrderOp",
    "PackOp",
    "PickOp",
    "CompressOp",
    "PositionsOp",
    "PrepareProgramOp",
    "ProgramOp",
    "ReceiveOp",
    "ReduceOp",
    "RemainderOp",
    "RunningAttr",
    "RunsPrograms",
    "ScatterOp",
    "ScheduleAttr",
    "SegmentsOp",
    "SelectOp",
    "ThreefryOp",
    "SendOp",
    "StartExchangeOp",
    "Structured",
    "SumPairsOp",
    "SuppressOp",
    "TopKOp",
    "TransformTilesOp",
    "ViewOp",
    "YieldOp",
    "contraction",
    "is_contraction",
]
