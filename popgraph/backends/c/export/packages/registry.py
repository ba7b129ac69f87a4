"""The kinds of packages by name, for `popgraph export --package`."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.backends.c.export.packages import (
    arduino,
    cargo,
    conan,
    esp_idf,
    npm,
    platformio,
    zephyr,
)
from popgraph.backends.c.export.packages.package import Package
from popgraph.support.errors import BackendError

PACKAGES: Mapping[str, Package] = {
    module.PACKAGE.name: module.PACKAGE
    for module in (arduino, cargo, conan, esp_idf, npm, platformio, zephyr)
}


def package_of(name: str) -> Package:
    """The kind of package of a name; BackendError if there is none."""
    if name not in PACKAGES:
        raise BackendError(
            f"there is no package {name!r}", "--package", f"use one of {', '.join(PACKAGES)}"
        )
    return PACKAGES[name]
