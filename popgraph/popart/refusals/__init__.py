"""What PopART refuses or warns of, in its words and in the order in which it checks."""

from __future__ import annotations

from popgraph.popart.refusals import notices, operators, options
from popgraph.popart.refusals.table import Asked, Moment, refuse

__all__ = ["Asked", "Moment", "notices", "operators", "options", "refuse"]
