"""PopONNX's enumerations: current members with their former names."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.builder.opset import enums as modern


def _with(kind: type[modern.PopartEnum], old: str) -> type:
    """A class with the members of an enumeration, and their former names: `OLD=Current`."""
    names = dict(one.split("=") for one in old.split())
    members = {member.name: member for member in kind}
    return named(kind.__name__, members | {one: kind[today] for one, today in names.items()})


class _AnyCase(type):
    """Finds members in the spelling of any version of PopART: `FWD0` is `Fwd0`."""

    def __getattr__(cls, name: str) -> object:
        for member, value in vars(cls).items():
            if member.lower() == name.lower():
                return value
        raise AttributeError(f"{cls.__name__} has no member {name}")


def named(name: str, members: Mapping[str, object]) -> type:
    return _AnyCase(name, (), dict(members))


AnchorReturnTypeId = _with(modern.AnchorReturnTypeId, "FINAL=Final EVERYN=EveryN ALL=All SUM=Sum")
DeviceConnectionType = _with(
    modern.DeviceConnectionType, "ALWAYS=Always ON_DEMAND=OnDemand NEVER=Never"
)
PatternsLevel = _with(modern.PatternsLevel, "ALL=All DEFAULT=Default NONE=NoPatterns")
RecomputationType = _with(modern.RecomputationType, "None=NoRecompute")
ReductionType = _with(modern.ReductionType, "SUM=Sum MEAN=Mean")
SyncPattern = _with(modern.SyncPattern, "PingPong=ReplicaAndLadder")
VirtualGraphMode = _with(modern.VirtualGraphMode, "PingPong=ExecutionPhases")

_STORAGE = modern.TensorStorage
CacheType = named(
    "CacheType",
    {"Undefined": _STORAGE.OnChip, "Uncached": _STORAGE.OnChip, "Cached": _STORAGE.OffChip},
)
"""The former name of `TensorStorage`."""

DotCheck = named("DotCheck", {name: name for name in ("Fwd0", "Fwd1", "Bwd0", "PreAlias", "Final")})
"""Values of `SessionOptions.dotChecks`."""
