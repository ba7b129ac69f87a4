"""PopONNX's session options, patterns and devices under their older names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from popgraph.builder.opset.enums import (
    DeviceConnectionType,
    DeviceSelectionCriterion,
    PatternsLevel,
    RecomputationType,
    ReductionType,
    SyncPattern,
    SyntheticDataMode,
    VirtualGraphMode,
)
from popgraph.ipu.machine import MK1
from popgraph.popart.api import devices, options
from popgraph.popart.api import patterns as modern
from popgraph.popart.api.logger import getLogger
from popgraph.popart.api.patterns import PATTERNS, spelt
from popgraph.popart.api.settings import (
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
)
from popgraph.popart.eras.enums import named
from popgraph.popart.eras.era import PLAIN_POPONNX, Era
from popgraph.popart.exceptions import popart_unsupported_exception


def _log_levels(levels: Mapping[str, str]) -> None:
    for name, level in levels.items():
        getLogger(name).setLevel(level)


@dataclass(frozen=True)
class _Renamed:
    """An old option and the current option that replaces it."""

    default: object
    today: str
    value: Callable[[Mapping[str, Any]], object]
    """The value of the current option, from the values of all old options."""


def _recomputation(old: Mapping[str, Any]) -> RecomputationType:
    on = old["enableRecomputation"] or old["enableAutoRecomputation"]
    return RecomputationType.Standard if on else RecomputationType.NoRecompute


def _virtual_graphs(old: Mapping[str, Any]) -> VirtualGraphMode:
    if old["autoVirtualGraph"]:
        return VirtualGraphMode.Auto
    return VirtualGraphMode.Manual if old["enableVirtualGraphs"] else VirtualGraphMode.Off


def _alone(
    name: str, default: object, today: str, value: Callable[[Any], object]
) -> dict[str, _Renamed]:
    """An old option that alone sets `today`."""
    return {name: _Renamed(default, today, lambda old: value(old[name]))}


def _synthetic(ignored: bool) -> SyntheticDataMode:
    return SyntheticDataMode.Zeros if ignored else SyntheticDataMode.Off


_RENAMED = {
    "enableVirtualGraphs": _Renamed(False, "virtualGraphMode", _virtual_graphs),
    "autoVirtualGraph": _Renamed(False, "virtualGraphMode", _virtual_graphs),
    "enableRecomputation": _Renamed(False, "autoRecomputation", _recomputation),
    "enableAutoRecomputation": _Renamed(False, "autoRecomputation", _recomputation),
    **_alone("ignoreData", False, "syntheticDataMode", _synthetic),
    **_alone(
        "accumulationReductionType",
        ReductionType.Sum,
        "accumulationAndReplicationReductionType",
        lambda value: value,
    ),
    **_alone(
        "enableAutomaticLossScaling",
        False,
        "automaticLossScalingSettings",
        AutomaticLossScalingSettings,
    ),
    **_alone(
        "batchSerializationFactor", 0, "batchSerializationSettings", BatchSerializationSettings
    ),
    **_alone("pingPongPhases", 0, "executionPhaseSettings", ExecutionPhaseSettings),
}
"""{old option: its successor}."""

_WITHOUT_EFFECT: dict[str, object] = {
    "exportDot": False,
    "enableConvolutionGraphCaching": True,
    "minimumVirtualGraphCount": 1,
    "dotSubgraphAnnotation": False,
    "maxDotOps": 10000,
    "enableGroupedMatmuls": True,
    "globalNumIpus": 1,
    "ipuSystemType": "",
    "explicitPipelining": False,
    "replicatedWeightSharding": False,
    "replicatedWeightShardingMinNumElements": 8192,
}
"""{old option that changes no result: default}."""

_REFUSED = ("hostAllReduce", "hostAllReduceRemoteBuffer", "hostWeightUpdate")
"""Old options that move the update to the host, which is unsupported."""


class SessionOptions(options.SessionOptions):
    """PopART's options and old names of some; an unknown name raises AttributeError."""

    __slots__ = ("_old",)
    ERA: ClassVar[Era] = PLAIN_POPONNX
    _old: dict[str, object]

    def __init__(self) -> None:
        renamed = {name: one.default for name, one in _RENAMED.items()}
        old = {**_WITHOUT_EFFECT, **renamed, "logging": {}, **dict.fromkeys(_REFUSED, False)}
        object.__setattr__(self, "_old", old)
        super().__init__()
        self.constantWeights = self.ERA.constant_weights
        self.groupNormStridedChannelGrouping = self.ERA.strided_groups

    def __getattr__(self, name: str) -> object:
        if name != "_old" and name in self._old:
            return self._old[name]
        raise AttributeError(f"'SessionOptions' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._old:
            super().__setattr__(name, value)
            return
        if name in _REFUSED and value:
            raise popart_unsupported_exception(
                f"the session option {name} is not implemented",
                f"SessionOptions.{name}",
                "leave it at its default",
            )
        self._old[name] = value
        if name in _RENAMED:
            renamed = _RENAMED[name]
            super().__setattr__(renamed.today, renamed.value(self._old))
        elif name == "logging":
            assert isinstance(value, Mapping)
            _log_levels(value)


GONE = (
    *("GemmDecomposition", "InPlace0", "LogSoftmaxOp", "SplitConvBias", "TanToSinOverCos"),
    "TanhGradOp",
)
"""Patterns that later versions dropped; they changed no result."""
_LOWER = {name.lower() for name in GONE}

PatternType = named(
    "PreAliasPatternType",
    {name: name for name in (*PATTERNS, *GONE)},
)
"""The names of patterns that `Patterns` accepts in a list."""


class Patterns(modern.Patterns):
    """`Patterns(["PostNRepl"])` disables all others; no pattern is mandatory."""

    ERA: ClassVar[Era] = PLAIN_POPONNX

    def __init__(
        self,
        patterns: PatternsLevel | Sequence[str] | None = None,
        *,
        level: PatternsLevel = PatternsLevel.Default,
    ) -> None:
        if not isinstance(patterns, PatternsLevel | None):
            patterns = [spelt(name) for name in patterns if name.lower() not in _LOWER]
        super().__init__(patterns, level=level)
        self.enableRuntimeAsserts(self.ERA.mandatory)

    def insists_on_needed(self) -> bool:
        return self.ERA.mandatory

    def __getattr__(self, name: str) -> bool:
        return bool(self._enabled) if name in GONE else super().__getattr__(name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in GONE:
            object.__setattr__(self, name, bool(value))
        else:
            super().__setattr__(name, value)


class DeviceManager(devices.DeviceManager):
    __doc__ = devices.DeviceManager.__doc__

    def _check_connection(self, connectionType: DeviceConnectionType) -> None:
        """PopONNX compiles for devices without a connection."""

    def acquireAvailableDevice(  # type: ignore[override]
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        replicationFactor: int = 1,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> devices.DeviceInfo:
        """Selects IPUs; hardware required the replica count in advance, which is ignored here."""
        return super().acquireAvailableDevice(
            numIpus, tilesPerIpu, pattern, connectionType=connectionType
        )

    acquireAvaliableDevice = acquireAvailableDevice

    def acquireDeviceById(  # type: ignore[override]
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        replicationFactor: int = 1,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> devices.DeviceInfo:
        return super().acquireDeviceById(id, pattern, connectionType)

    def createIpuModelDevice(self, options: Mapping[str, object]) -> devices.DeviceInfo:
        """Defaults to all tiles of a first-generation IPU."""
        return super().createIpuModelDevice(
            {"tilesPerIPU": MK1.tiles, "ipuVersion": MK1.name} | dict(options)
        )

    def enumerateDevices(  # type: ignore[override]
        self,
        pattern: SyncPattern = SyncPattern.Full,
        replicationFactor: int = 1,
        *rest: Any,
        **named: Any,
    ) -> list[devices.DeviceInfo]:
        return super().enumerateDevices(pattern, *rest, **named)
