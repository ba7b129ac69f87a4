"""The names that programs take from PopART's private module of its IR."""

from __future__ import annotations

from popgraph.builder.opset.comm_group import CommGroup
from popgraph.builder.opset.enums import CollectiveOperator, CommGroupType, DataType
from popgraph.builder.popart.variable_settings import ReplicaGrouping, VariableSettings
from popgraph.session.debugging import DebugContext, DebugInfo
from popgraph.session.optimizer_value import OptimizerValue

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
