"""PopONNX's module `poponnx.session`."""

from popgraph.popart.eras.session import Session
from popgraph.popart.eras.sessions import InferenceSession, TrainingSession

__all__ = ["InferenceSession", "Session", "TrainingSession"]
