"""PopART's module `popart.writer`."""

from popgraph.compat.net_writer import NetWriter

__all__ = ["NetWriter"]
