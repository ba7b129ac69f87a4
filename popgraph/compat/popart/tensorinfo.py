"""PopART's module `popart.tensorinfo`."""

from popgraph.popart.api.tensorinfo import TensorInfo as TensorInfo
