"""PopONNX's module `poponnx.torch.torchwriter`."""

from popgraph.popart.pytorch import PytorchNetWriter as PytorchNetWriter
from popgraph.popart.pytorch import conv3x3 as conv3x3
