"""PopART's groups of replicas, as users name them."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import CommGroupType


@typed
@dataclass
class CommGroup:
    """Which replicas form a group, and how many of them."""

    type: CommGroupType = CommGroupType.All
    replicaGroupSize: int = 0
