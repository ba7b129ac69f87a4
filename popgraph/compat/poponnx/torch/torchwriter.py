"""PopONNX's module `poponnx.torch.torchwriter`."""

from popgraph.popart.torch_writer import PytorchNetWriter, conv3x3

__all__ = ["PytorchNetWriter", "conv3x3"]
