"""The names that programs take from PopART's private module of its IR."""

from __future__ import annotations

from popgraph.builder.opset.comm_group import CommGroup
from popgraph.builder.opset.enums import CollectiveOperator, CommGroupType, DataType
from popgraph.popart.api.debugging import DebugContext, DebugInfo
from popgraph.popart.api.optimizer_value import OptimizerValue
from popgraph.popart.api.variable_settings import ReplicaGrouping, VariableSettings

__all__ = [
    "CollectiveOperator",
    "CommGroup",
    "CommGroupType",
    "DataType",
    "DebugContext",
    "DebugInfo",
    "OptimizerValue",
    "ReplicaGrouping",
    "VariableSettings",
]
