"""PopONNX's module `poponnx.writer`."""

from popgraph.popart.net_writer import NetWriter as NetWriter
