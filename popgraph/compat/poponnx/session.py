"""PopONNX's module `poponnx.session`."""

from popgraph.popart.eras.sessions import InferenceSession as InferenceSession
from popgraph.popart.eras.sessions import Session as Session
from popgraph.popart.eras.sessions import TrainingSession as TrainingSession
