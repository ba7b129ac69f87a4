"""Graphs under construction, from operations of another graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.builder import Builder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects.program import GraphOp, ReturnOp, VariableOp
from popgraph.support.index_checks import IndexCheck


@dataclass
class GrowingGraph:
    """A graph under construction, and its counterparts of values of the other graph."""

    block: Block
    values: dict[SSAValue, SSAValue] = field(default_factory=dict)
    inputs: dict[str, SSAValue] = field(default_factory=dict)
    outputs: dict[str, SSAValue] = field(default_factory=dict)
    variables: dict[str, SSAValue] = field(default_factory=dict)

    def add(self, op: Operation) -> None:
        Builder(InsertPoint.at_end(self.block)).insert(op)

    def variable(self, name: str, like: VariableOp) -> SSAValue:
        """The one read of a variable in this part."""
        if name not in self.variables:
            made = VariableOp(name, like.literal)
            made.location = like.location
            self.add(made)
            self.variables[name] = made.result
        return self.variables[name]

    def input(self, name: str, like: SSAValue) -> SSAValue:
        if name not in self.inputs:
            self.inputs[name] = self.block.insert_arg(like.type, len(self.block.args))
        return self.inputs[name]

    def finished(self, checks: Iterable[IndexCheck] = ()) -> ModuleOp:
        self.add(ReturnOp(list(self.outputs.values()), list(self.outputs), checks))
        graph = GraphOp("main", tuple(self.inputs), ())
        graph.body.detach_block(graph.block)
        graph.body.add_block(self.block)
        return ModuleOp([graph])
