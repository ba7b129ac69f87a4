"""Memoizes nodes on literals: equal nodes of other layers or programs are folded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from xdsl.ir import SSAValue

from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.schema_inference import ANSWERS
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.dialects.program.interned import number_of
from popgraph.operators.record import LoweringFunction, lowering_of
from popgraph.support.tuning import Tuning

Literals: TypeAlias = tuple[DataAttr | None, ...]
"""The literal of each output; None for absent outputs."""


class NodeOfLiterals(NamedTuple):
    """A memoization key: everything that the outputs of a node depend on."""

    function: LoweringFunction | None
    operator: type[OnnxOp]
    names: tuple[str, ...]
    """Names of the properties, whose values are numbers here, like all attributes."""
    properties: tuple[int, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    tuning: Tuning

    @classmethod
    def of(
        cls, op: OnnxOp, values: Mapping[SSAValue, SSAValue], tuning: Tuning
    ) -> NodeOfLiterals | None:
        """The key of a node without graphs whose operands are all literals in the IR, or None."""
        if op.regions or not isinstance(op, SchemaOp):
            return None
        literals = []
        for operand in op.operands:
            literal = _literal(values.get(operand))
            if literal is None:
                return None
            literals.append(number_of(literal))
        return cls(
            lowering_of(op.domain, op.op_type),
            type(op),
            tuple(op.properties),
            tuple(map(number_of, op.properties.values())),
            tuple(literals),
            tuple([number_of(result.type) for result in op.results]),
            tuning,
        )


def _literal(value: SSAValue | None) -> DataAttr | None:
    owner = None if value is None else value.owner
    literal = owner.literal if isinstance(owner, ConstantOp) else None
    return literal if isinstance(literal, DataAttr) else None


class KnownNodes:
    """The folded outputs of nodes on literals."""

    def __init__(self) -> None:
        self._found: dict[NodeOfLiterals, Literals] = {}

    def get(self, node: NodeOfLiterals) -> Literals | None:
        """The outputs of a node, if known."""
        return self._found.get(node)

    def note(
        self,
        node: NodeOfLiterals,
        operands: Sequence[SSAValue],
        outputs: Sequence[SSAValue | None],
    ) -> None:
        """Stores the outputs, if each is a literal distinct from the operands and other outputs."""
        there = [value for value in outputs if value is not None]
        if any(_literal(value) is None for value in there):
            return
        if len({*there, *operands}) < len(there) + len({*operands}):
            return
        if len(self._found) >= ANSWERS:
            self._found.clear()
        self._found[node] = tuple([_literal(value) for value in outputs])


KNOWN_NODES = KnownNodes()
