"""The former name of `popgraph.popart`, for programs that import it."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popgraph.popart import *  # noqa: F403

sys.modules[__name__] = import_module("popgraph.popart")
