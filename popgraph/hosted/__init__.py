"""Models with host steps: compiled segments and nodes that Python computes, run in order."""

from __future__ import annotations

from popgraph.hosted.model import HostedExecutable, HostedModel
from popgraph.hosted.part import Role

__all__ = ["HostedExecutable", "HostedModel", "Role"]
