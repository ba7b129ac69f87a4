"""PopART's module `popart.builder`."""

from popgraph.builder.builder import Builder

__all__ = ["Builder"]
