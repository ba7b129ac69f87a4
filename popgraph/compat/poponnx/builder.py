"""PopONNX's module `poponnx.builder`."""

from popgraph.popart.eras.builder import Builder

__all__ = ["Builder"]
