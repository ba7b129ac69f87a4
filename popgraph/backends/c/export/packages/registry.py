"""The kinds of packages by name, for `popgraph export --package`."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.backends.c.export.packages import npm
from popgraph.backends.c.export.packages.package import Package
from popgraph.support.errors import BackendError

PACKAGES: Mapping[str, Package] = {one.name: one for one in (npm.PACKAGE,)}


def package_of(name: str) -> Package:
    """The kind of package of a name; BackendError if there is none."""
    if name not in PACKAGES:
        raise BackendError(
            f"there is no package {name!r}", "--package", f"use one of {', '.join(PACKAGES)}"
        )
    return PACKAGES[name]
