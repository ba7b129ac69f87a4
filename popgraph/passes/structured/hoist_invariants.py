"""Loop-invariant code motion: moves work on captured values out of loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import Pure

from popgraph.dialects.program import CallLoopOp, GraphOp, graphs_of
from popgraph.dialects.program.calls import callees_first
from popgraph.dialects.program.ops import names_attribute
from popgraph.dialects.tile import ViewOp
from popgraph.passes.analysis.invariants import hoist, invariants
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT


@dataclass(frozen=True)
class HoistInvariants(Pass):
    """
    Move work of a loop body that depends on captured values only before the loop.

    A typical case is the packing of weights that training updates: once per step, not once per
    iteration. `hoist-constants` moves work on constants. Views are free, and stay.
    """

    name = "hoist-invariants"
    NEEDS = (UNCUT,)
    AFTER = ("schedule-contractions",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        graphs = {graph.sym_name.data: graph for graph in graphs_of(module)}
        for graph in callees_first(list(graphs.values())):
            for op in list(graph.block.ops):
                if isinstance(op, CallLoopOp):
                    _hoist(op, graphs[op.graph.string_value()])


def _hoist(call: CallLoopOp, body: GraphOp) -> None:
    """Moves invariant work of a body to its caller, and captures its results."""
    outer = _captured(call, body)
    moved = _moved(body, outer)
    if not moved:
        return
    captured = list[SSAValue]()

    def capture(value: SSAValue, outside: SSAValue) -> SSAValue:
        argument = body.block.insert_arg(value.type, len(body.block.args))
        argument.name_hint = value.name_hint
        captured.append(outside)
        return argument

    hoist(moved, outer, lambda op: Rewriter.insert_op(op, InsertPoint.before(call)), capture)
    _capture(call, body, captured)


def _captured(call: CallLoopOp, body: GraphOp) -> dict[SSAValue, SSAValue]:
    """{argument of the body: captured value} for the values that are equal in every iteration."""
    first = 1 + len(call.carried) + len(call.scanned)
    return dict(zip(body.block.args[first:], call.captured, strict=True))


def _moved(body: GraphOp, captured: Iterable[SSAValue]) -> list[Operation]:
    """The invariant work of a body, without views that only other work reads."""
    found = invariants(body.block, captured, lambda op: op.has_trait(Pure))
    while found and any(isinstance(op, ViewOp) and not _is_needed(op, found) for op in found):
        found = [op for op in found if not isinstance(op, ViewOp) or _is_needed(op, found)]
    return found


def _is_needed(view: ViewOp, found: list[Operation]) -> bool:
    """Whether an operation in `found` reads a view."""
    return any(use.operation in found for use in view.output.uses)


def _capture(call: CallLoopOp, body: GraphOp, values: list[SSAValue]) -> None:
    """Replaces a loop by one that captures additional values."""
    made = call.capturing(values)
    body.properties["input_names"] = names_attribute(made.argument_names)
    made.location = call.location
    for old, new in zip(call.results, made.results, strict=True):
        new.name_hint = old.name_hint
    Rewriter.replace_op(call, made)
