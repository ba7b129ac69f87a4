"""PopART's module `popart.session`."""

from popgraph.builder.opset.exceptions import OutOfMemoryException
from popgraph.session.inference_session import InferenceSession
from popgraph.session.training_session import TrainingSession

__all__ = ["InferenceSession", "OutOfMemoryException", "TrainingSession"]
