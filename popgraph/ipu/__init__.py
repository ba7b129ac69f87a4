"""
The model of an IPU: tile mappings, cycles of bulk-synchronous steps, and memory of tiles.

No compilation needs this room. Its import registers the pass that maps programs onto tiles, and the
reference evaluation of mapped operations.
"""

from popgraph.backends.reference.graph import RUNNERS
from popgraph.ipu.map_to_tiles import on_ipus
from popgraph.ipu.model import IpuModel
from popgraph.ipu.reference import runner_on_tiles

__all__ = ["IpuModel", "on_ipus"]

RUNNERS.append(runner_on_tiles)
