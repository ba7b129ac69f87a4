"""PopART's module `popart.builder`."""

from popgraph.builder.popart.builder import Builder

__all__ = ["Builder"]
