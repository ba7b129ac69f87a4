"""Fixtures of the session tests: one device of each kind, and levels of logs that end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from popgraph.popart import getLogger
from popgraph.popart.api.devices import DeviceInfo, DeviceManager


@pytest.fixture(params=["reference", "c"])
def device(request: pytest.FixtureRequest) -> DeviceInfo:
    """A device that runs with NumPy, and one that runs compiled code."""
    return DeviceManager().createCpuDevice(backend=request.param)


@pytest.fixture
def quiet() -> Iterator[None]:
    """The levels of logs that a test sets end with it."""
    yield
    getLogger().setLevel("WARN")
