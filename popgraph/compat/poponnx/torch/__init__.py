"""PopONNX's package `poponnx.torch`, for programs that have PyTorch beside it."""

from popgraph.popart.torch_writer import PytorchNetWriter, conv3x3

__all__ = ["PytorchNetWriter", "conv3x3"]
