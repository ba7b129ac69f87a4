"""Fixtures of the session tests: a device of each backend, and log levels that are reset."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from popgraph.popart import getLogger
from popgraph.popart.api.devices import DeviceInfo, DeviceManager


@pytest.fixture(params=["reference", "c"])
def device(request: pytest.FixtureRequest) -> DeviceInfo:
    """A device of the reference backend, and one that runs compiled C."""
    return DeviceManager().createCpuDevice(backend=request.param)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Resets the log level after a test."""
    yield
    getLogger().setLevel("WARN")
