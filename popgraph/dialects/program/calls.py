"""Calls of graphs: branches and loops whose bodies are other graphs of the module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import SymbolRefAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from popgraph.dialects.program.control_signatures import (
    Branching,
    Looping,
    loop_properties,
    loop_results,
    row_type,
)
from popgraph.dialects.program.control_text import (
    parse_branch,
    parse_loop,
    print_branch,
    print_loop,
)
from popgraph.dialects.program.interned import symbol, tensor_type
from popgraph.dialects.program.ops import GraphOp


@irdl_op_definition
class CallCondOp(Branching):
    """Runs one of two graphs of the module: `graphcore.cond` with outlined bodies."""

    name = "pg.call_cond"
    then_graph = prop_def(SymbolRefAttr)
    else_graph = prop_def(SymbolRefAttr)
    traits = traits_def(Pure())

    def __init__(
        self,
        then: str,
        otherwise: str,
        predicate: SSAValue,
        captured: Sequence[SSAValue],
        types: Sequence[Attribute],
    ) -> None:
        super().__init__(
            operands=[predicate, captured],
            properties={"then_graph": symbol(then), "else_graph": symbol(otherwise)},
            result_types=[types],
        )

    @property
    def argument_names(self) -> list[str]:
        """The names of the inputs of both bodies."""
        return self.input_names(len(self.captured))

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of both bodies: then, else."""
        return self.then_graph.string_value(), self.else_graph.string_value()

    def capturing(self, more: Sequence[SSAValue]) -> CallCondOp:
        """The same branch, with bodies that take `more` as additional last arguments."""
        captured = [*self.captured, *more]
        then, otherwise = self.graphs
        return CallCondOp(then, otherwise, self.predicate, captured, self.outputs.types)

    def verify_(self) -> None:
        self.check_predicate()

    def print(self, printer: Printer) -> None:
        then, otherwise = self.graphs
        printer.print_string(f" @{then} else @{otherwise} if ")
        print_branch(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> CallCondOp:
        then = parser.parse_symbol_name().data
        parser.parse_keyword("else")
        otherwise = parser.parse_symbol_name().data
        parser.parse_keyword("if")
        (predicate, *captured), types, attributes = parse_branch(parser)
        made = cls(then, otherwise, predicate, captured, types)
        made.attributes |= attributes
        return made


@irdl_op_definition
class CallLoopOp(Looping):
    """Runs a graph of the module repeatedly: `graphcore.loop` with an outlined body."""

    name = "pg.call_loop"
    graph = prop_def(SymbolRefAttr)
    traits = traits_def(Pure())

    def __init__(
        self,
        graph: str,
        rows: Sequence[Attribute],
        *,
        trips: int,
        carried: Sequence[SSAValue] = (),
        scanned: Sequence[SSAValue] = (),
        captured: Sequence[SSAValue] = (),
        go: SSAValue | None = None,
        limit: SSAValue | None = None,
        reverse: bool = False,
    ) -> None:
        super().__init__(
            operands=[go, limit, carried, scanned, captured],
            properties={**loop_properties(trips, reverse), "graph": symbol(graph)},
            result_types=loop_results(carried, trips, rows),
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The name of the body."""
        return (self.graph.string_value(),)

    def capturing(self, more: Sequence[SSAValue]) -> CallLoopOp:
        """The same loop, with a body that takes `more` as additional last arguments."""
        return self._with(more, self.limit)

    def limited(self, limit: SSAValue) -> CallLoopOp:
        """The same loop, limited to `limit` iterations."""
        return self._with((), limit)

    def _with(self, more: Sequence[SSAValue], limit: SSAValue | None) -> CallLoopOp:
        return CallLoopOp(
            self.graph.string_value(),
            [row_type(value) for value in self.stacked],
            trips=self.turns,
            carried=self.carried,
            scanned=self.scanned,
            captured=[*self.captured, *more],
            go=self.go,
            limit=limit,
            reverse=self.reverse is not None,
        )

    @property
    def argument_names(self) -> list[str]:
        """The names of the inputs of the body."""
        return self.input_names(len(self.carried), len(self.scanned), len(self.captured))

    def verify_(self) -> None:
        self.check_loop()

    def print(self, printer: Printer) -> None:
        printer.print_string(f" @{self.graph.string_value()}")
        print_loop(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> CallLoopOp:
        graph = parser.parse_symbol_name().data
        arguments, results, attributes = parse_loop(parser)
        rows = [_row(parser, type_) for type_ in results[len(arguments["carried"]) :]]
        made = cls(graph, rows, **arguments)
        made.attributes |= attributes
        return made


def _row(parser: Parser, type_: Attribute) -> Attribute:
    if not isinstance(type_, TensorType) or not type_.get_shape():
        parser.raise_error("stacked rows must be a tensor with one row per iteration")
    return tensor_type(type_.element_type, type_.get_shape()[1:])


CALLS: tuple[type[CallCondOp | CallLoopOp], ...] = (CallCondOp, CallLoopOp)
"""Operations that run other graphs of the module."""


def called_graphs(op: Operation) -> Iterator[str]:
    """The names of the graphs that an operation calls."""
    if isinstance(op, CallCondOp | CallLoopOp):
        yield from op.graphs


def callees_first(graphs: Sequence[GraphOp]) -> list[GraphOp]:
    """The graphs of a module in topological order: each follows the graphs that it calls."""
    known = {graph.sym_name.data: graph for graph in graphs}
    ordered: dict[str, GraphOp] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            for callee in calls_in(known[name]):
                visit(callee)
            ordered[name] = known[name]

    for name in known:
        visit(name)
    return list(ordered.values())


def calls_in(graph: GraphOp) -> list[str]:
    """The graphs that a graph calls, each once, in order."""
    return list(dict.fromkeys(name for op in graph.walk() for name in called_graphs(op)))
