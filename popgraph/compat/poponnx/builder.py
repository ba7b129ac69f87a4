"""PopONNX's module `poponnx.builder`."""

from popgraph.popart.eras.builder import Builder as Builder
