"""Models of which Python computes some nodes: compiled segments and host steps, run in order."""

from __future__ import annotations

from popgraph.hosted.model import HostedExecutable, HostedModel
from popgraph.hosted.part import Role

__all__ = ["HostedExecutable", "HostedModel", "Role"]
