"""The layers by which PopART's outlining tells operators apart when PopLiner asks for it."""

from __future__ import annotations

import os
import re
from functools import cache

from popgraph.session.popart_ir.graph import Settings
from popgraph.support.logs import log_of

_ENVIRONMENT = "POPART_POPLINER_OUTLINER_REGEX"
"""A regular expression with a group that finds the number of a layer in an operator's name."""


def place_of(settings: Settings) -> int | None:
    """On which IPU an operator is; by the environment, the layer that its name tells instead."""
    pattern = os.environ.get(_ENVIRONMENT)
    return settings.ipu if pattern is None else _layer(pattern, settings.name)


@cache
def _layer(pattern: str, name: str) -> int:
    """The layer of a name, which the log tells of once; 0 of a name that tells none."""
    found = re.search(pattern, name)
    if found is None or len(found.groups()) != 1:
        log_of("op").warning("Outliner considering op '%s' on default subgraph.", name)
        return 0
    layer = int(found[1])
    log_of("op").warning("Outliner considering op '%s' on subgraph #%d", name, layer)
    return layer
