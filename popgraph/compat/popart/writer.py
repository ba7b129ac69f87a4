"""PopART's module `popart.writer`."""

from popgraph.popart.net_writer import NetWriter as NetWriter
