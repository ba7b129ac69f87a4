"""Outlining: bodies of branches and loops become graphs of the module."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore import CondOp, LoopOp
from popgraph.dialects.graphcore.control import Control, yield_of
from popgraph.dialects.program import CallCondOp, CallLoopOp, GraphOp, ReturnOp, graphs_of
from popgraph.dialects.program.control_signatures import row_type


class Outliner:
    """Moves bodies into graphs, and replaces branches and loops by calls of these graphs."""

    def __init__(self, module: ModuleOp) -> None:
        self._module = module
        self._taken = {graph.sym_name.data for graph in graphs_of(module)}

    def outline(self, op: Control) -> None:
        """
        graphcore.loop { body }, graphcore.cond { then } { else }  ->  pg.call_loop, pg.call_cond
        """
        call = self._loop(op) if isinstance(op, LoopOp) else self._cond(op)
        call.location = op.location
        for old, new in zip(op.results, call.results, strict=True):
            new.name_hint = old.name_hint
        Rewriter.insert_op(call, InsertPoint.before(op))
        Rewriter.replace_op(op, [], call.results)

    def _cond(self, op: Control) -> Operation:
        assert isinstance(op, CondOp)
        inputs, outputs = op.input_names(len(op.captured)), op.output_names(len(op.outputs))
        then, otherwise = (
            self._graph(block, name, inputs, outputs)
            for block, name in zip(op.bodies(), ("then", "else"), strict=True)
        )
        return CallCondOp(then, otherwise, op.predicate, op.captured, op.outputs.types)

    def _loop(self, op: LoopOp) -> Operation:
        inputs = op.input_names(len(op.carried), len(op.scanned), len(op.captured))
        outputs = op.output_names(op.go is not None, len(op.carried), len(op.stacked))
        return CallLoopOp(
            self._graph(op.block, "loop", inputs, outputs),
            [row_type(value) for value in op.stacked],
            trips=op.turns,
            carried=op.carried,
            scanned=op.scanned,
            captured=op.captured,
            go=op.go,
            limit=op.limit,
            reverse=op.reverse is not None,
        )

    def _graph(self, body: Block, word: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
        """Moves the operations of a body into a new graph; returns its name."""
        name = self._name(word)
        graph = GraphOp(name, inputs, [argument.type for argument in body.args])
        for old, new in zip(body.args, graph.block.args, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        end = yield_of(body)
        graph.block.add_op(ReturnOp(end.values, outputs))
        Rewriter.erase_op(end)
        for inner in list(body.ops):
            inner.detach()
            graph.block.insert_op_before(inner, graph.return_op)
        self._module.body.block.add_op(graph)
        return name

    def _name(self, word: str) -> str:
        number = 0
        while f"{word}_{number}" in self._taken:
            number += 1
        self._taken.add(f"{word}_{number}")
        return f"{word}_{number}"
