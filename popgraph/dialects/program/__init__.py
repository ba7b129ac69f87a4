"""The `pg` dialect: graphs with named inputs and outputs, constants, variables, updates."""

from __future__ import annotations

from xdsl.ir import Dialect

from popgraph.dialects.program.attributes import BlobAttr, BytesAttr, DataAttr, IntsAttr
from popgraph.dialects.program.calls import CallCondOp, CallLoopOp
from popgraph.dialects.program.checks import IndexCheckAttr
from popgraph.dialects.program.ops import (
    ConstantOp,
    GraphOp,
    PrepareOp,
    ReturnOp,
    UpdateOp,
    VariableOp,
    YieldOp,
    constant_array,
    graphs_of,
)
from popgraph.dialects.program.sizes import SizeAttr
from popgraph.dialects.program.weights import WeightStore

PG = Dialect(
    "pg",
    [
        CallCondOp,
        CallLoopOp,
        ConstantOp,
        GraphOp,
        PrepareOp,
        ReturnOp,
        UpdateOp,
        VariableOp,
        YieldOp,
    ],
    [BlobAttr, BytesAttr, DataAttr, IndexCheckAttr, IntsAttr, SizeAttr],
)

__all__ = [
    "PG",
    "BlobAttr",
    "BytesAttr",
    "CallCondOp",
    "CallLoopOp",
    "ConstantOp",
    "DataAttr",
    "GraphOp",
    "IndexCheckAttr",
    "IntsAttr",
    "PrepareOp",
    "ReturnOp",
    "SizeAttr",
    "UpdateOp",
    "VariableOp",
    "WeightStore",
    "YieldOp",
    "constant_array",
    "graphs_of",
]
