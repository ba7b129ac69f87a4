"""PopART's module `popart.session`."""

from popgraph.builder.opset.exceptions import OutOfMemoryException
from popgraph.session.session import InferenceSession, TrainingSession

__all__ = ["InferenceSession", "OutOfMemoryException", "TrainingSession"]
