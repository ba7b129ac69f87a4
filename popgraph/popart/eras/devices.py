"""PopONNX's `DeviceManager`: a misspelt method, a number of replicas, models of whole IPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from popgraph.builder.opset.enums import (
    DeviceConnectionType,
    DeviceSelectionCriterion,
    SyncPattern,
)
from popgraph.ipu.machine import MK1
from popgraph.popart.api import devices as modern


class DeviceManager(modern.DeviceManager):
    __doc__ = modern.DeviceManager.__doc__

    def _check_connection(self, connectionType: DeviceConnectionType) -> None:
        """PopONNX compiles for devices to which nothing is connected."""

    def acquireAvailableDevice(  # type: ignore[override]
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        replicationFactor: int = 1,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> modern.DeviceInfo:
        """Some IPUs; an IPU is told how many replicas will share them, this machine need not be."""
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
    ) -> modern.DeviceInfo:
        return super().acquireDeviceById(id, pattern, connectionType)

    def createIpuModelDevice(self, options: Mapping[str, object]) -> modern.DeviceInfo:
        """A whole IPU of the first generation, where the options say nothing else."""
        return super().createIpuModelDevice(
            {"tilesPerIPU": MK1.tiles, "ipuVersion": MK1.name} | dict(options)
        )

    def enumerateDevices(  # type: ignore[override]
        self,
        pattern: SyncPattern = SyncPattern.Full,
        replicationFactor: int = 1,
        *rest: Any,
        **named: Any,
    ) -> list[modern.DeviceInfo]:
        return super().enumerateDevices(pattern, *rest, **named)
