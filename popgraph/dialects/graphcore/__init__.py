"""The graphcore dialect: what a network computes, as pure functions of tensors."""

from __future__ import annotations

from xdsl.ir import Dialect

from popgraph.dialects.graphcore.activations import (
    DropoutOp,
    GeluOp,
    LeakyReluOp,
)
from popgraph.dialects.graphcore.arithmetic import (
    AddOp,
    DivOp,
    ExpOp,
    LogOp,
    MaxOp,
    MinOp,
    MulOp,
    NegOp,
    PowOp,
    SubOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import (
    Binary,
    Composite,
    Contraction,
    Elementwise,
    GraphcoreOp,
    Lookup,
    Movement,
    Random,
    Reduction,
    Unary,
    Window,
)
from popgraph.dialects.graphcore.batch_norm import BatchNormOp, BatchNormTrainOp
from popgraph.dialects.graphcore.broadcasting import (
    BroadcastOp,
    ReduceSumOp,
    ReshapeOp,
)
from popgraph.dialects.graphcore.contractions import (
    ConvInputGradOp,
    ConvOp,
    ConvWeightGradOp,
    MatMulOp,
)
from popgraph.dialects.graphcore.detach import DetachOp
from popgraph.dialects.graphcore.functions import (
    AbsOp,
    AtanOp,
    CastOp,
    CeilOp,
    CosOp,
    ErfOp,
    Expm1Op,
    FloorOp,
    Log1pOp,
    ReciprocalOp,
    ReluOp,
    RoundOp,
    SigmoidOp,
    SignOp,
    SinOp,
    SqrtOp,
    TanhOp,
    TanOp,
)
from popgraph.dialects.graphcore.logic import (
    AndOp,
    CompareOp,
    IsNanOp,
    NotOp,
    OrOp,
    XorOp,
)
from popgraph.dialects.graphcore.lookup import (
    CheckIndicesOp,
    GatherGradOp,
    GatherOp,
    IotaOp,
)
from popgraph.dialects.graphcore.losses import IdentityLossOp, L1LossOp
from popgraph.dialects.graphcore.movement import (
    ConcatOp,
    PadOp,
    SliceOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.nll import NllLossGradOp, NllLossOp
from popgraph.dialects.graphcore.normalization import LayerNormOp, LrnOp
from popgraph.dialects.graphcore.pooling import (
    AveragePoolGradOp,
    AveragePoolOp,
    MaxPoolGradOp,
    MaxPoolOp,
)
from popgraph.dialects.graphcore.random import (
    RandomUniformOp,
)
from popgraph.dialects.graphcore.reductions import (
    ArgMaxOp,
    ArgMinOp,
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceMinOp,
    ReduceProdOp,
)
from popgraph.dialects.graphcore.softmax import (
    LogSoftmaxGradOp,
    LogSoftmaxOp,
    SoftmaxGradOp,
    SoftmaxOp,
)

__all__ = [
    "GRAPHCORE",
    "AbsOp",
    "AddOp",
    "AndOp",
    "ArgMaxOp",
    "ArgMinOp",
    "AtanOp",
    "AveragePoolGradOp",
    "AveragePoolOp",
    "BatchNormOp",
    "BatchNormTrainOp",
    "Binary",
    "BroadcastOp",
    "CastOp",
    "CeilOp",
    "CheckIndicesOp",
    "CompareOp",
    "Composite",
    "ConcatOp",
    "Contraction",
    "ConvInputGradOp",
    "ConvOp",
    "ConvWeightGradOp",
    "CosOp",
    "DetachOp",
    "DivOp",
    "DropoutOp",
    "Elementwise",
    "ErfOp",
    "ExpOp",
    "Expm1Op",
    "FloorOp",
    "Log1pOp",
    "GatherGradOp",
    "GatherOp",
    "GeluOp",
    "GraphcoreOp",
    "IdentityLossOp",
    "IotaOp",
    "IsNanOp",
    "L1LossOp",
    "LayerNormOp",
    "LeakyReluOp",
    "LogOp",
    "LogSoftmaxGradOp",
    "LogSoftmaxOp",
    "Lookup",
    "LrnOp",
    "MatMulOp",
    "MaxOp",
    "MaxPoolGradOp",
    "MaxPoolOp",
    "MinOp",
    "Movement",
    "MulOp",
    "NegOp",
    "NllLossGradOp",
    "NllLossOp",
    "NotOp",
    "OrOp",
    "PadOp",
    "PowOp",
    "Random",
    "RandomUniformOp",
    "ReciprocalOp",
    "ReduceMaxOp",
    "ReduceMeanOp",
    "ReduceMinOp",
    "ReduceProdOp",
    "ReduceSumOp",
    "Reduction",
    "ReluOp",
    "ReshapeOp",
    "RoundOp",
    "SigmoidOp",
    "SignOp",
    "SinOp",
    "SliceOp",
    "SoftmaxGradOp",
    "SoftmaxOp",
    "SqrtOp",
    "SubOp",
    "TanOp",
    "TanhOp",
    "TransposeOp",
    "Unary",
    "WhereOp",
    "Window",
    "XorOp",
]

GRAPHCORE = Dialect(
    "graphcore",
    [globals()[name] for name in __all__ if name.endswith("Op") and name != "GraphcoreOp"],
)
