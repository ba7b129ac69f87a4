"""PopART's module `popart.tensorinfo`."""

from popgraph.builder.opset.tensorinfo import TensorInfo

__all__ = ["TensorInfo"]
