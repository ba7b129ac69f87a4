"""PopONNX's `DeviceManager`, one of whose methods was misspelt at first."""

from __future__ import annotations

from popgraph.session import devices as modern


class DeviceManager(modern.DeviceManager):
    __doc__ = modern.DeviceManager.__doc__

    acquireAvaliableDevice = modern.DeviceManager.acquireAvailableDevice
