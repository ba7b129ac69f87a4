"""PopART's package `popart.torch`, for programs that have PyTorch beside it."""

from popgraph.popart.torch_sessions import InferenceSession, TrainingSession
from popgraph.popart.torch_writer import PytorchNetWriter, conv3x3

__all__ = ["InferenceSession", "PytorchNetWriter", "TrainingSession", "conv3x3"]
