"""PopART's module `popart.builder`."""

from popgraph.session.builder import Builder

__all__ = ["Builder"]
