"""Returns only the rows appended to caches, instead of whole caches."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from popgraph.dialects.graphcore import ConcatOp
from popgraph.dialects.program import graphs_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options


@dataclass(frozen=True)
class ReturnAppended(Pass):
    """
    return concat(x, new)  ->  return new, for a cache x.

    Only when x is an input of the program. The caller has x and writes the new rows after it in
    place. Returning x as well would copy the whole cache for each token of a decoder.
    """

    name = "return-appended"
    KEEPS_MEANING = False

    @classmethod
    def of(cls, options: Options) -> ReturnAppended | None:
        return cls() if options.appended else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            returned = graph.block.last_op
            assert returned is not None, "a graph ends with its outputs"
            for number, value in enumerate(returned.operands):
                returned.operands[number] = appended(value)


def appended(value: SSAValue) -> SSAValue:
    """The rows appended to an input of the program; the value itself if it is not such a cache."""
    op = value.owner
    if isinstance(op, ConcatOp) and len(op.xs) == 2 and isinstance(op.xs[0].owner, Block):
        return op.xs[1]
    return value
