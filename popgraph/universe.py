"""The entry point for stock xDSL tools: dialects, passes and the C target."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from xdsl.passes import ModulePass
from xdsl.transforms import get_all_passes
from xdsl.universe import Universe

import popgraph.ipu.map_to_tiles  # noqa: F401 (registers its pass)
from popgraph.dialects.registry import OWN
from popgraph.passes.base import Pass
from popgraph.passes.pipeline import PASSES, factories


def _passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """Passes by name; a name that xDSL also uses gets the prefix `popgraph-`."""
    taken = get_all_passes()
    return {
        f"popgraph-{name}" if name in taken else name: partial(_renamed, name)
        if name in taken
        else made
        for name, made in factories().items()
    }


def _renamed(name: str) -> type[Pass]:
    pass_class = PASSES[name]
    return type(pass_class.__name__, (pass_class,), {"name": f"popgraph-{name}"})


UNIVERSE = Universe(all_dialects=dict(OWN), all_passes=_passes())
