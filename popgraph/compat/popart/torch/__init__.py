"""PopART's package `popart.torch`, for programs that have PyTorch beside it."""

from popgraph.popart.torch_sessions import InferenceSession as InferenceSession
from popgraph.popart.torch_sessions import TrainingSession as TrainingSession
from popgraph.popart.torch_writer import PytorchNetWriter as PytorchNetWriter
from popgraph.popart.torch_writer import conv3x3 as conv3x3
