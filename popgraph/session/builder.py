"""PopART's builder, which writes operators of the version that PopART does."""

from __future__ import annotations

from typing import ClassVar

from popgraph.builder.opset.arguments import typed
from popgraph.builder.popart import builder


@typed
class Builder(builder.Builder):
    """
    Builds an ONNX graph call by call, as `popgraph.Builder` does; `aiOnnx` is version 10.

    As in PopART, an operator that does not take its inputs is refused by the session.
    """

    DEFAULT_OPSET: ClassVar[int] = 10
    _REFUSES_EARLY: ClassVar[bool] = False
