"""Evaluates an ONNX node by the graphcore operations that it lowers to."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, SSAValue

from popgraph.dialects.building import building_detached
from popgraph.dialects.graphcore.control import values_of
from popgraph.dialects.onnx.evaluation import LOWERED, block_of
from popgraph.dialects.onnx.inference import Inference, needs_store
from popgraph.dialects.onnx.schema_inference import ANSWERS, elements
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import ConstantOp, WeightStore
from popgraph.operators.record import is_lowered, structural_operands
from popgraph.passes.base import LOWERING
from popgraph.passes.onnx.index_bounds import insert_checks
from popgraph.passes.onnx.to_graphcore.lowering import Lowering
from popgraph.support.arrays import Array
from popgraph.support.shapes import KNOWN_ELEMENTS

_programs: dict[Hashable, Program] = {}
"""Cache of lowered nodes: equal nodes of layers or of a loop's iterations are lowered once."""


def evaluate_lowered(
    op: SchemaOp, operands: Sequence[Any], store: WeightStore, opsets: Mapping[str, int]
) -> list[Array | None] | None:
    """
    The outputs of a node for these operands; None if its operator has no lowering.

    Indices out of bounds are errors. Random numbers are drawn as in the first step.
    """
    if not is_lowered(op) or op.regions:
        return None
    arrays = [None if one is None else np.asarray(one) for one in operands]
    with LOWERING:
        program = _program(op, arrays, store, opsets)
    with np.errstate(all="ignore"):
        return program.run(arrays)


def _program(
    op: SchemaOp, arrays: Sequence[Array | None], store: WeightStore, opsets: Mapping[str, int]
) -> Program:
    structural = structural_operands(op)
    known = [one for at, one in enumerate(arrays) if at in structural and one is not None]
    large = sum(one.size for one in known) > KNOWN_ELEMENTS
    if large or any(map(needs_store, op.properties.values())):
        return Program.of(op, arrays, structural, WeightStore(store), opsets)
    question = (
        type(op),
        tuple(op.onnx_attributes().items()),
        tuple(map(bool, op.output_names)),
        tuple(
            None if one is None else elements(one) if at in structural else (one.dtype, one.shape)
            for at, one in enumerate(arrays)
        ),
        tuple(opsets.items()),
    )
    found = _programs.get(question)
    if found is None:
        found = Program.of(op, arrays, structural, WeightStore(), opsets)
        if len(_programs) >= ANSWERS:
            _programs.clear()
        _programs[question] = found
    return found


@dataclass(frozen=True)
class Program:
    """The operations that compute the outputs of a node."""

    block: Block
    given: Sequence[int]
    """Indices of the operands that are arguments; the others are constants."""
    outputs: Sequence[SSAValue | None]
    weights: WeightStore

    @classmethod
    def of(
        cls,
        op: SchemaOp,
        arrays: Sequence[Array | None],
        structural: frozenset[int],
        weights: WeightStore,
        opsets: Mapping[str, int],
    ) -> Program:
        """Lowers a copy of the node, specialized to these values of structural operands."""
        block = Block()
        with building_detached():
            inner, node = block_of(op, arrays)
            insert_checks(node, Inference(opsets, weights))
        given: list[int] = []
        values: list[SSAValue] = []
        types = [argument.type for argument in inner.args]
        there = ((at, one) for at, one in enumerate(arrays) if one is not None)
        for (at, array), type_ in zip(there, types, strict=True):
            if at in structural:
                with ImplicitBuilder(block):
                    values.append(ConstantOp(weights.attribute(array)).result)
            else:
                given.append(at)
                values.append(block.insert_arg(type_, len(block.args)))
        lowering = Lowering(weights, training=False, opsets=opsets, home=block, block=block)
        with ImplicitBuilder(block):
            found = lowering.inline(inner, values, node.results)
        made: dict[SSAValue, SSAValue | None] = dict(zip(node.results, found, strict=True))
        return cls(block, given, [one and made[one] for one in node.output_values()], weights)

    def run(self, arrays: Sequence[Array | None]) -> list[Array | None]:
        given = [array for at in self.given if (array := arrays[at]) is not None]
        values = values_of(self.block, given, self.weights)
        return [None if one is None else np.array(values[one]) for one in self.outputs]


LOWERED.function = evaluate_lowered
