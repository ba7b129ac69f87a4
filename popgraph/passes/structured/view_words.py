"""Replaces the packing of words by views of memory that already holds them."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects import tile
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.words import views_words


@dataclass(frozen=True)
class ViewWords(Pass):
    """
    y = map (x[i] + 256 x[i + 1] + ...)  ->  y = view x

    Only when the elements of each word are adjacent in x, the lowest first.
    """

    name = "view-words"
    NEEDS = (UNCUT,)
    AFTER = ("schedule-contractions",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, tile.MapOp) and views_words(op):
                word = tensor(op.outputs[0])
                replace_op(op, tile.ViewOp(op.inputs[0], word.get_shape(), word.element_type))
