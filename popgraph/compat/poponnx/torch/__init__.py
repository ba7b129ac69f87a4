"""PopONNX's package `poponnx.torch`, for programs that use PyTorch."""

from popgraph.popart.pytorch import PytorchNetWriter as PytorchNetWriter
from popgraph.popart.pytorch import conv3x3 as conv3x3
