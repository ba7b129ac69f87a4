"""Memoization of nodes on literals: equal ones, in other layers or for other shapes, fold once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.schema_inference import ANSWERS
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.operators.record import LoweringFunction, lowering_of
from popgraph.support.tuning import Tuning

Literals: TypeAlias = tuple[DataAttr | None, ...]
"""What each output is; None for one that is absent."""


class NodeOfLiterals(NamedTuple):
    """All that its outputs depend on."""

    function: LoweringFunction | None
    operator: type[OnnxOp]
    properties: tuple[tuple[str, Attribute], ...]
    operands: tuple[DataAttr, ...]
    results: tuple[Attribute, ...]
    tuning: Tuning

    @classmethod
    def of(
        cls, op: OnnxOp, values: Mapping[SSAValue, SSAValue], tuning: Tuning
    ) -> NodeOfLiterals | None:
        """A node without graphs in it, if all its operands are literals that stand in the IR."""
        if op.regions or not isinstance(op, SchemaOp):
            return None
        operands = [_literal(values.get(operand)) for operand in op.operands]
        literals = tuple([literal for literal in operands if literal is not None])
        if len(literals) < len(operands):
            return None
        return cls(
            lowering_of(op.domain, op.op_type),
            type(op),
            tuple(op.properties.items()),
            literals,
            tuple([result.type for result in op.results]),
            tuning,
        )


def _literal(value: SSAValue | None) -> DataAttr | None:
    owner = None if value is None else value.owner
    literal = owner.literal if isinstance(owner, ConstantOp) else None
    return literal if isinstance(literal, DataAttr) else None


class KnownNodes:
    """What nodes on literals have become."""

    def __init__(self) -> None:
        self._found: dict[NodeOfLiterals, Literals] = {}

    def get(self, node: NodeOfLiterals) -> Literals | None:
        """The outputs of such a node, if they are known."""
        return self._found.get(node)

    def note(
        self,
        node: NodeOfLiterals,
        operands: Sequence[SSAValue],
        outputs: Sequence[SSAValue | None],
    ) -> None:
        """Keeps what the outputs have become, if each is a literal of its own."""
        there = [value for value in outputs if value is not None]
        if any(_literal(value) is None for value in there):
            return
        if len({*there, *operands}) < len(there) + len({*operands}):
            return
        if len(self._found) >= ANSWERS:
            self._found.clear()
        self._found[node] = tuple([_literal(value) for value in outputs])


KNOWN_NODES = KnownNodes()
