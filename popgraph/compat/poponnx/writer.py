"""PopONNX's module `poponnx.writer`."""

from popgraph.compat.net_writer import NetWriter

__all__ = ["NetWriter"]
