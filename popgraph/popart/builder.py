"""PopART's builder with the default opset of PopART."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Union

from xdsl.ir import Attribute

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.graphcore_opset import AiGraphcoreOpset1
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.popart.about import defaultAiOnnxOpset
from popgraph.popart.api import builder
from popgraph.popart.api.opsets import POPART_OPSETS, onnx_opset

DEBUG_ID = "__debug_info_id"
"""PopART's attribute of builder nodes: the number of their debug info."""


@typed
class Builder(builder.Builder):
    """
    Builds an ONNX graph call by call, like `popgraph.Builder`; `aiOnnx` is version 10.

    As in PopART, an operator with invalid operands is rejected by the session. Nodes have the
    attribute `__debug_info_id`, which models omit: ONNX's checker rejects it.
    """

    DEFAULT_OPSET: ClassVar[int] = defaultAiOnnxOpset
    _REFUSES_EARLY: ClassVar[bool] = False

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)

    __getattr__.__annotations__["return"] = Union[
        (AiGraphcoreOpset1, *map(onnx_opset, POPART_OPSETS.values()))
    ]

    def _held(self, op: OnnxOp) -> Mapping[str, Attribute]:
        held = super()._held(op)
        number = next((self._root._debug_ids.get(id) for id in op.output_names if id), None)
        if number is None:
            return held
        return {DEBUG_ID: from_python(DEBUG_ID, number, None, self.weights), **held}
