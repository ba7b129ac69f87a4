"""PopART's devices and device manager; this machine emulates all devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import (
    DeviceConnectionType,
    DeviceSelectionCriterion,
    DeviceType,
    SyncPattern,
)
from popgraph.ipu.machine import IPUS, MK2, Ipu
from popgraph.popart.exceptions import popart_exception

_FEW_TILES = 4
_ids = count()


def _wanted_threads() -> int:
    said = os.environ.get("POPGRAPH_THREADS", "").strip() or "1"
    if not (said.isdecimal() and int(said)):
        where = "POPGRAPH_THREADS"
        raise popart_exception(
            f"{where} is {said!r}", where, "a positive integer, or leave it unset"
        )
    return int(said)


@typed
class DeviceInfo:
    """
    A device; also a context manager that detaches at its end.

    `backend` ("c", or "reference" for NumPy) and `threads` are extensions; their defaults are the
    environment's `POPGRAPH_BACKEND` and `POPGRAPH_THREADS`.
    """

    def __init__(
        self,
        type_: DeviceType,
        numIpus: int = 1,
        tilesPerIPU: int = 0,
        version: str = "",
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        backend: str | None = None,
        threads: int | None = None,
        id: int = 0,
    ) -> None:
        self.backend = backend or os.environ.get("POPGRAPH_BACKEND", "c")
        self.threads = threads or _wanted_threads()
        self._type, self._count, self._tiles = type_, numIpus, tilesPerIPU
        self._version, self._connection = version, connectionType
        self._id = id
        self._attached = connectionType is DeviceConnectionType.Always

    @property
    def type(self) -> DeviceType:
        return self._type

    @property
    def connectionType(self) -> DeviceConnectionType:
        return self._connection

    @property
    def version(self) -> str:
        return _VERSIONS.get(self._type, self._version)

    @property
    def ipuVersion(self) -> str:
        return self._version

    @property
    def id(self) -> int:
        return self._id

    @property
    def numIpus(self) -> int:
        return self._count

    @property
    def tilesPerIPU(self) -> int:
        return self._tiles

    tilesPerIpu = tilesPerIPU

    @property
    def ipu(self) -> Ipu | None:
        """The IPU model of the device; None for a CPU."""
        if self._type is DeviceType.Cpu:
            return None
        generation = IPUS.get(self._version, MK2)
        return generation.of(max(1, self._count), self._tiles)

    @property
    def driverIds(self) -> list[int]:
        return []

    @property
    def numWorkerContexts(self) -> int:
        return self.ipu.workers if self.ipu and self._type is DeviceType.IpuModel else 1

    @property
    def isAttached(self) -> bool:
        return self._attached

    @property
    def runs(self) -> bool:
        """Whether steps can run; for an offline device, programs are only compiled."""
        return self._connection is not DeviceConnectionType.Never

    def attach(self) -> bool:
        if not self.runs:
            raise popart_exception("Cannot attach to offline device", "DeviceInfo.attach")
        self._attached = True
        return True

    def tryAttachUntilTimeout(self) -> bool:
        return self.attach()

    def detach(self) -> None:
        if not self.runs:
            raise popart_exception("Cannot detach from offline device", "DeviceInfo.detach")
        self._attached = False

    def __enter__(self) -> DeviceInfo:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        connection = "on-demand" if self._connection.name == "OnDemand" else self._connection.name
        ids = ",".join(map(str, self.driverIds))
        return (
            f"Device Type:{self._type} Connection Type:{connection.lower()} Id:{self._id} "
            f"Version:{self.version} NumIPUs:{self._count} NumTilesPerIPU:{self._tiles} "
            f"DeviceIds: {{{ids}}}"
        )


_VERSIONS = {
    DeviceType.Cpu: "<unknown-cpu>",
    DeviceType.Sim: "<unknown-sim>",
    DeviceType.OfflineIpu: "<offline-ipu>",
}
"""PopART's version strings of devices without a driver."""


@typed
class DeviceManager:
    """
    Finds and creates devices.

    Programs written for IPUs should run anywhere: a request for IPUs returns devices that report to
    be IPUs, while this machine executes their programs.
    """

    def _check_connection(self, connectionType: DeviceConnectionType) -> None:
        """Rejects connection type Never for hardware devices."""
        if connectionType is DeviceConnectionType.Never:
            raise popart_exception(
                "Trying to acquire a hardware device when connectionType is "
                "DeviceConnectionType::Never",
                "DeviceManager",
                "createOfflineIPUDevice makes a device to compile for",
            )

    def createCpuDevice(
        self, *, backend: str | None = None, threads: int | None = None
    ) -> DeviceInfo:
        return DeviceInfo(DeviceType.Cpu, backend=backend, threads=threads)

    def createIpuModelDevice(self, options: Mapping[str, object]) -> DeviceInfo:
        known = ("numIPUs", "tilesPerIPU", "compileIPUCode", "ipuVersion")
        return _described(DeviceType.IpuModel, options, known)

    def createSimDevice(self, options: Mapping[str, object]) -> DeviceInfo:
        return _described(DeviceType.Sim, options, ("numIPUs", "tilesPerIPU"))

    def createOfflineIPUDevice(self, opts: Mapping[str, object]) -> DeviceInfo:
        known = ("numIPUs", "tilesPerIPU", "ipuVersion", "syncPattern", "gatewayMode")
        return _described(DeviceType.OfflineIpu, opts, known, DeviceConnectionType.Never)

    def createOfflineIpuFromDeviceInfo(self, deviceInfo: DeviceInfo) -> DeviceInfo:
        return _unavailable(deviceInfo.numIpus, deviceInfo.tilesPerIPU, deviceInfo.ipuVersion)

    def createOfflineIpuFromSystemString(self, system: str, numIpus: int) -> DeviceInfo:
        return _unavailable(numIpus, _FEW_TILES, system)

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """IPUs emulated by this machine."""
        self._check_connection(connectionType)
        return _some_ipus(numIpus, tilesPerIpu, connectionType)

    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """One IPU emulated by this machine; any id is accepted."""
        self._check_connection(connectionType)
        return _ipu(1, 0, connectionType, id)

    tryAcquireAvailableDevice = acquireAvailableDevice
    tryAcquireDeviceById = acquireDeviceById
    """There is always a device here. Programs replace the `try...` methods by these."""

    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """The only device."""
        if deviceType is DeviceType.Ipu:
            return [_ipu(numIpus, tilesPerIPU, connectionType)]
        return [DeviceInfo(deviceType, numIpus, tilesPerIPU or _FEW_TILES)]

    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """No effect: attaching never waits here."""


def _some_ipus(count: int, tiles: int, connection: DeviceConnectionType) -> DeviceInfo:
    """Checks that the number of IPUs is a power of two, as PopART does."""
    if count < 1 or count & (count - 1):
        raise popart_exception(
            f"You have attempted to acquire {count} IPUs. The number of IPUs requested "
            "must be a power of two"
        )
    return _ipu(count, tiles, connection)


def _ipu(
    count: int, tiles: int, connection: DeviceConnectionType, id: int | None = None
) -> DeviceInfo:
    number = next(_ids) if id is None else id
    return DeviceInfo(DeviceType.Ipu, count, tiles or MK2.tiles, "ipu2", connection, id=number)


def _described(
    type_: DeviceType,
    options: Mapping[str, object],
    known: tuple[str, ...],
    connection: DeviceConnectionType = DeviceConnectionType.Always,
) -> DeviceInfo:
    for option in options:
        if option not in known:
            raise popart_exception(
                f"Invalid option `{option}' passed to DevicexManager::createHostDevice for device "
                f"type {type_}. Valid options are [{' '.join(known)}]"
            )
    return DeviceInfo(
        type_,
        int(str(options.get("numIPUs", 1))),
        int(str(options.get("tilesPerIPU", _FEW_TILES))),
        str(options.get("ipuVersion", "ipu2")),
        connection,
    )


def _unavailable(count: int, tiles: int, version: str) -> DeviceInfo:
    never = DeviceConnectionType.Never
    return DeviceInfo(DeviceType.OfflineIpu, count, tiles, version, never)


@typed
def syncPatternToString(pattern: SyncPattern) -> str:
    return str(pattern)


@typed
def syncPatternFromString(text: str) -> SyncPattern:
    for pattern in SyncPattern:
        if str(pattern) == text:
            return pattern
    raise popart_exception(f"Unknown syncPattern setting: {text}")
