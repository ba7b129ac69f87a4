"""`tile.nest`: structured operations fused along their leading loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.affine import linear
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.dialects.tile.structured.contract import ContractOp
from popgraph.dialects.tile.structured.ops import MapOp, ReduceOp, YieldOp, yielded
from popgraph.support.shapes import Shape

Nested = MapOp | ReduceOp | ContractOp
"""What may stand in a nest."""


@irdl_op_definition
class NestOp(IRDLOperation):
    """
    Structured operations that share their leading loops, run together for each index of these.

    `domain` holds the sizes of the shared loops; those of every operation in the body begin with
    it. An iteration takes `step` indices of the last shared loop. What the body computes and does
    not yield lives in local memory for one iteration, so it is only read at the same shared
    indices. The meaning is that of the operations one after the other.
    """

    name = "tile.nest"
    inputs = var_operand_def(base(TensorType))
    domain = prop_def(IntsAttr)
    step = prop_def(IntegerAttr)
    body = region_def("single_block")
    outputs = var_result_def(TensorType)
    traits = traits_def(IsolatedFromAbove(), Pure(), EndsAtSizes())
    assembly_format = (
        "`ins` `(` $inputs `:` type($inputs) `)` `domain` $domain `step` $step $body attr-dict "
        "`->` type($outputs)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        domain: Sequence[int],
        body: Block,
        types: Sequence[Attribute],
        step: int = 1,
    ) -> None:
        super().__init__(
            operands=[inputs],
            properties={"domain": IntsAttr.of(domain), "step": IntegerAttr(step, i64)},
            regions=[Region(body)],
            result_types=[types],
        )

    @property
    def sizes(self) -> Shape:
        """The extents of the shared loops."""
        return self.domain.data

    @property
    def nested(self) -> list[Nested]:
        """The operations in order; nothing else may stand in the body, and be passed over."""
        *inner, _ = self.body.block.ops
        found = [op for op in inner if isinstance(op, Nested)]
        assert len(found) == len(inner), "what does not run in a nest stands in one"
        return found

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values in the body that are the results."""
        return yielded(self.body.block)

    def verify_(self) -> None:
        block = self.body.block
        if [argument.type for argument in block.args] != [value.type for value in self.inputs]:
            raise VerifyException("the body takes the inputs")
        if not isinstance(block.last_op, YieldOp):
            raise VerifyException("the body ends with tile.yield")
        yielded = self.yielded
        if [value.type for value in yielded] != [value.type for value in self.outputs]:
            raise VerifyException("the body yields the results")
        if any(value.owner is block for value in yielded) or len(set(yielded)) != len(yielded):
            raise VerifyException("every result is computed in the body, once")
        for op in block.ops:
            if op is not block.last_op:
                self._check(op)

    def _check(self, op: Operation) -> None:
        if not isinstance(op, Nested):
            raise VerifyException(f"{op.name} does not run in a nest")
        shared = len(self.sizes)
        if op.sizes[:shared] != self.sizes or op.parallel_rank < shared:
            raise VerifyException(f"{op.name} does not begin with the loops of the nest")
        for value, map_ in readings(op):
            if value.owner is not self.body.block and not keeps_shared(map_, op.sizes, shared):
                raise VerifyException(f"{map_} reads what another iteration computes")
        if any(layout_of(value.type) for value in op.results):  # type: ignore[arg-type]
            raise VerifyException("results of operations in a nest are dense")


def readings(op: Nested) -> Iterator[tuple[SSAValue, AffineMap | None]]:
    """Every operand with its map; tables have none."""
    match op:
        case MapOp():
            yield from zip(op.inputs, op.input_maps, strict=True)
            yield from ((table, None) for table in op.tables)
        case ReduceOp():
            yield from zip(op.inputs, op.input_maps, strict=True)
            yield from zip(op.epilogue_inputs, op.epilogue_input_maps, strict=True)
        case ContractOp():
            yield from zip((op.lhs, op.rhs), op.input_maps, strict=True)
            yield from zip(op.epilogue_inputs, op.epilogue_input_maps, strict=True)
            yield from zip(op.block_inputs, op.block_input_maps, strict=True)


def keeps_shared(map_: AffineMap | None, sizes: Shape, shared: int) -> bool:
    """Whether a map reads, for each index of the leading loops, at that very index."""
    if map_ is None or len(map_.results) < shared:
        return False
    return all(
        linear(result, sizes) == linear(AffineExpr.dimension(dim), sizes)
        for dim, result in enumerate(map_.results[:shared])
    )
