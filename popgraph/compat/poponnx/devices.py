"""PopONNX's `DeviceManager`: a method that was misspelt at first, and a number of replicas."""

from __future__ import annotations

from typing import Any

from popgraph.builder.opset.enums import DeviceConnectionType, SyncPattern
from popgraph.session import devices as modern


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

    def enumerateDevices(  # type: ignore[override]
        self,
        pattern: SyncPattern = SyncPattern.Full,
        replicationFactor: int = 1,
        *rest: Any,
        **named: Any,
    ) -> list[modern.DeviceInfo]:
        return super().enumerateDevices(pattern, *rest, **named)
