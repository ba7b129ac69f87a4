"""The names that programs use from PopART's private IR module."""

from __future__ import annotations

from popgraph.builder.opset.enums import CollectiveOperator as CollectiveOperator
from popgraph.builder.opset.enums import CommGroup as CommGroup
from popgraph.builder.opset.enums import CommGroupType as CommGroupType
from popgraph.builder.opset.enums import DataType as DataType
from popgraph.popart.api.debugging import DebugContext as DebugContext
from popgraph.popart.api.debugging import DebugInfo as DebugInfo
from popgraph.popart.api.optimizer_base import OptimizerValue as OptimizerValue
from popgraph.popart.api.variable_settings import ReplicaGrouping as ReplicaGrouping
from popgraph.popart.api.variable_settings import VariableSettings as VariableSettings
