"""PopART's errors and warnings about a session, with their texts and in the order of its checks."""

from __future__ import annotations

from popgraph.popart.refusals import notices, operators, options
from popgraph.popart.refusals.table import RefusalContext, SessionPhase, refuse

__all__ = ["RefusalContext", "SessionPhase", "notices", "operators", "options", "refuse"]
