"""What do stock xDSL tools see of PopGraph? Its dialects, passes and C target, by entry point."""

from __future__ import annotations

from xdsl.universe import Universe

from popgraph.dialects.registry import OWN
from popgraph.passes.pipeline import factories

UNIVERSE = Universe(all_dialects=dict(OWN), all_passes=dict(factories()))
