"""PopONNX's module `poponnx.torch.torchwriter`."""

from popgraph.popart.torch_writer import PytorchNetWriter as PytorchNetWriter
from popgraph.popart.torch_writer import conv3x3 as conv3x3
