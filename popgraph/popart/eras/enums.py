"""PopONNX's enumerations: the members of today, and their names of the time."""

from __future__ import annotations

from popgraph.builder.opset import enums as modern
from popgraph.popart.api.patterns import PATTERNS
from popgraph.popart.eras.patterns import GONE

_OLD: dict[type[modern.PopartEnum], dict[str, str]] = {
    modern.AnchorReturnTypeId: {"FINAL": "Final", "EVERYN": "EveryN", "ALL": "All", "SUM": "Sum"},
    modern.DeviceConnectionType: {
        "ALWAYS": "Always",
        "ON_DEMAND": "OnDemand",
        "NEVER": "Never",
    },
    modern.PatternsLevel: {"ALL": "All", "DEFAULT": "Default", "NONE": "NoPatterns"},
    modern.RecomputationType: {"None": "NoRecompute"},
    modern.ReductionType: {"SUM": "Sum", "MEAN": "Mean"},
    modern.SyncPattern: {"PingPong": "ReplicaAndLadder"},
    modern.VirtualGraphMode: {"PingPong": "ExecutionPhases"},
}
"""The old names of members, and what they are called today."""

CACHE_TYPE = type(
    "CacheType",
    (),
    {
        "Undefined": modern.TensorStorage.OnChip,
        "Uncached": modern.TensorStorage.OnChip,
        "Cached": modern.TensorStorage.OffChip,
    },
)
"""Where an IPU keeps a tensor, which `TensorStorage` says today."""


class _AnyCase(type):
    """Finds members in whatever case a version of PopART wrote them: `FWD0` is `Fwd0`."""

    def __getattr__(cls, name: str) -> object:
        for member, value in vars(cls).items():
            if member.lower() == name.lower():
                return value
        raise AttributeError(f"{cls.__name__} has no member {name}")


DOT_CHECK = _AnyCase(
    "DotCheck", (), {name: name for name in ("Fwd0", "Fwd1", "Bwd0", "PreAlias", "Final")}
)
"""When graphs are drawn, as `SessionOptions.dotChecks` takes it."""

PATTERN_TYPE = _AnyCase("PreAliasPatternType", (), {name: name for name in (*PATTERNS, *GONE)})
"""Patterns by name, which `Patterns` takes in a list."""


def old_enums() -> dict[str, type]:
    """The enumerations whose members had other names, with both."""
    return {
        kind.__name__: type(
            kind.__name__,
            (),
            {
                **{member.name: member for member in kind},
                **{old: kind[today] for old, today in names.items()},
            },
        )
        for kind, names in _OLD.items()
    }
