"""Stochastic rounding of half-precision results, as on IPUs: rounding errors average out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, f16, f32
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import GraphcoreOp, tensor_of
from popgraph.dialects.graphcore.functions import Step
from popgraph.dialects.graphcore.random import ROUNDING_STREAMS, SEED
from popgraph.dialects.graphcore.rounding import RoundStochasticallyOp
from popgraph.dialects.program import (
    ConstantOp,
    GraphOp,
    UpdateOp,
    VariableOp,
    WeightStore,
    graphs_of,
)
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.properties import EXPANDED
from popgraph.support.warnings import PopgraphWarning

EXACT = (
    gc.Movement,
    gc.Random,
    Step,
    gc.AbsOp,
    gc.BitcastOp,
    gc.CompareOp,
    gc.DetachOp,
    gc.GatherOp,
    gc.MaxOp,
    gc.MaxPoolOp,
    gc.MinOp,
    gc.NegOp,
    gc.ReduceMaxOp,
    gc.ReduceMinOp,
    gc.ReluOp,
    gc.WhereOp,
    RoundStochasticallyOp,
)
"""Operations whose half-precision results need no rounding."""

HINT = "unroll these loops and branches, or compute in single precision inside them"


@dataclass(frozen=True)
class RoundStochastically(Pass):
    """
    y: f16 = op(x)  ->  y = round_stochastically(op(cast f32 x)).

    Only operations that round: moved or selected elements are unchanged. Each operation has a
    random stream of its own, derived from the program's seed, which counts the runs.
    """

    name = "round-stochastically"
    KEEPS_MEANING: ClassVar[bool] = False
    LOSES = (EXPANDED,)
    BEFORE = ("round-cheaply",)

    @classmethod
    def of(cls, options: Options) -> RoundStochastically | None:
        return cls() if options.stochastic_rounding else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            found = list(_rounding(graph.block.ops))
            if found:
                state = _state(graph, compilation.weights)
                for stream, op in zip(count(ROUNDING_STREAMS), found, strict=False):
                    _round(op, state, stream * len(op.results))
            bodies = (region for op in graph.block.ops for region in op.regions)
            if any(True for body in bodies for _ in _rounding(body.walk())):
                compilation.warn(
                    "half-precision results in loops and branches are rounded to the nearest, "
                    "not stochastically",
                    HINT,
                    PopgraphWarning,
                )


def _rounding(ops: Iterable[Operation]) -> Iterator[GraphcoreOp]:
    """Operations without bodies that round to half precision."""
    for op in ops:
        if not isinstance(op, GraphcoreOp) or isinstance(op, EXACT) or op.regions:
            continue
        if any(map(_is_half, op.results)):
            yield op


def _is_half(value: SSAValue) -> bool:
    return tensor_of(value).element_type == f16


def _state(graph: GraphOp, weights: WeightStore) -> SSAValue:
    """The variable with seed and step; each run increments the step."""
    first = graph.block.first_op
    assert first is not None, "a graph returns something"
    for op in graph.variables():
        if op.variable.text == SEED:
            if op is not first:  # operations before it may round
                op.detach()
                Rewriter.insert_op(op, InsertPoint.before(first))
            return op.result
    made = VariableOp(SEED, weights.attribute(np.zeros(2, np.int64)))
    Rewriter.insert_op(made, InsertPoint.before(first))
    with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
        one = ConstantOp(weights.attribute(np.array([0, 1], np.int64)))
        UpdateOp(SEED, gc.AddOp(made.result, one).result)
    return made.result


def _round(op: GraphcoreOp, state: SSAValue, stream: int) -> None:
    """Replaces an operation by its single-precision form followed by stochastic rounding."""
    with made_for(op):
        if isinstance(op, gc.CastOp):
            is_single = tensor_of(op.x).element_type == f32
            wide = [op.x if is_single else gc.CastOp(op.x, to=f32).result]
        else:
            wide = list(_widened(op).results)
        for number, (old, new) in enumerate(zip(op.results, wide, strict=True)):
            if _is_half(old):
                new = RoundStochasticallyOp(new, state, stream=stream + number).result
                new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
    Rewriter.erase_op(op)


def _widened(op: GraphcoreOp) -> GraphcoreOp:
    """A copy of an operation in single precision."""
    wide = {
        value: gc.CastOp(value, to=f32).result
        for value in dict.fromkeys(op.operands)
        if _is_half(value)
    }
    made = op.clone(dict(wide))
    for result, type_ in zip(made.results, made.infer(), strict=True):
        set_type(result, type_)
    return made
