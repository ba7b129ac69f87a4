"""The listing of a model: a string that notebooks show in colours."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.pgraph.print.from_module import text_of
from popgraph.builder.pgraph.print.from_values import WeightFile
from popgraph.builder.pgraph.print.highlighting import html
from popgraph.dialects.program import WeightStore

MAX_LINES = 400
"""Most lines of a text that a notebook shows."""

ELSEWHERE = "weights.safetensors"
"""Placeholder name of the weight file in a listing for display."""


class Listing(str):
    """The `.pgraph` text of a model: a string that notebooks show in colours."""

    __slots__ = ()

    @staticmethod
    def of(module: ModuleOp, weights: WeightStore, *, whole: bool = True) -> Listing:
        """
        The text of an onnx module.

        Unless it is `whole`, large weights are only named, so that the text stays readable.
        """
        return Listing(text_of(module, weights, None if whole else WeightFile(ELSEWHERE)))

    def _repr_html_(self) -> str:
        lines = self.split("\n")
        text = "\n".join(lines[:MAX_LINES])
        if len(lines) > MAX_LINES:
            text += f"\n# ... {len(lines) - MAX_LINES} more lines"
        return html(text)
