"""PopART's module `popart.tensorinfo`."""

from popgraph.builder.tensorinfo import TensorInfo

__all__ = ["TensorInfo"]
