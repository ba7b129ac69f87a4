"""Fixtures of the session tests: one device of each kind."""

from __future__ import annotations

import pytest

from popgraph.session.devices import DeviceInfo, DeviceManager


@pytest.fixture(params=["reference", "c"])
def device(request: pytest.FixtureRequest) -> DeviceInfo:
    """A device that runs with NumPy, and one that runs compiled code."""
    return DeviceManager().createCpuDevice(backend=request.param)
