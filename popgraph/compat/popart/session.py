"""PopART's module `popart.session`."""

from popgraph.popart.exceptions import OutOfMemoryException
from popgraph.popart.sessions.inference_session import InferenceSession
from popgraph.popart.sessions.training_session import TrainingSession

__all__ = ["InferenceSession", "OutOfMemoryException", "TrainingSession"]
