"""PopONNX's module `poponnx.session`."""

from popgraph.popart.eras.sessions import InferenceSession, Session, TrainingSession

__all__ = ["InferenceSession", "Session", "TrainingSession"]
