"""PopART's module `popart.session`."""

from popgraph.popart.exceptions import OutOfMemoryException as OutOfMemoryException
from popgraph.popart.sessions.inference_session import InferenceSession as InferenceSession
from popgraph.popart.sessions.training_session import TrainingSession as TrainingSession
