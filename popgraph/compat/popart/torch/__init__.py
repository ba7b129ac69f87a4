"""PopART's package `popart.torch`, for programs that use PyTorch."""

from popgraph.popart.pytorch import InferenceSession as InferenceSession
from popgraph.popart.pytorch import PytorchNetWriter as PytorchNetWriter
from popgraph.popart.pytorch import TrainingSession as TrainingSession
from popgraph.popart.pytorch import conv3x3 as conv3x3
