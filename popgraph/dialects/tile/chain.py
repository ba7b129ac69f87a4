"""What runs together, some channels at a time, with whole images in between kept near?"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsolatedFromAbove, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.affine import linear
from popgraph.dialects.tile.nest import readings
from popgraph.dialects.tile.structured import ContractOp, YieldOp
from popgraph.support.shapes import Shape


@irdl_op_definition
class ChainOp(IRDLOperation):
    """
    Contractions that share one loop and read one another, run together for a part of that loop.

    The shared loop is dimension `along[i]` of contraction `i`. An iteration takes `step` of its
    indices: it runs the first contraction for these, then the next. What the body computes and
    does not yield lives in local memory for one iteration, its halo with it, so it is only read at
    the same shared index, but anywhere else. The meaning is that of the contractions one after the
    other.
    """

    name = "tile.chain"
    inputs = var_operand_def(base(TensorType))
    along = prop_def(IntsAttr)
    step = prop_def(IntegerAttr)
    body = region_def("single_block")
    output = result_def(TensorType)
    traits = traits_def(IsolatedFromAbove(), Pure())
    assembly_format = (
        "`ins` `(` $inputs `:` type($inputs) `)` `along` $along `step` $step $body attr-dict "
        "`->` type($output)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        along: Sequence[int],
        step: int,
        body: Block,
        type_: Attribute,
    ) -> None:
        super().__init__(
            operands=[inputs],
            properties={"along": IntsAttr.of(along), "step": IntegerAttr(step, i64)},
            regions=[Region(body)],
            result_types=[type_],
        )

    @property
    def chained(self) -> list[ContractOp]:
        """The contractions in order."""
        return [op for op in self.body.block.ops if isinstance(op, ContractOp)]

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The value in the body that is the result."""
        end = self.body.block.last_op
        assert isinstance(end, YieldOp)
        return tuple(end.values)

    def verify_(self) -> None:
        block = self.body.block
        if [argument.type for argument in block.args] != [value.type for value in self.inputs]:
            raise VerifyException("the body takes the inputs")
        if not isinstance(block.last_op, YieldOp):
            raise VerifyException("the body ends with tile.yield")
        if len(list(block.ops)) != len(self.along.data) + 1:
            raise VerifyException("every contraction in the body has one shared loop")
        made: dict[SSAValue, int] = {}
        for op, along in zip(block.ops, self.along.data, strict=False):
            self._check(op, along, made)
            made[op.results[0]] = along
        last = block.last_op.prev_op
        if last is None or self.yielded != tuple(last.results):
            raise VerifyException("the body yields what its last contraction computes")
        if self.yielded[0].type != self.output.type:
            raise VerifyException("the body yields the result")

    def _check(self, op: Operation, along: int, made: dict[SSAValue, int]) -> None:
        if not isinstance(op, ContractOp) or len(op.outputs) != 1:
            raise VerifyException(f"{op.name} does not run in a chain")
        shared = self.chained[0].sizes[self.along.data[0]]
        if not 0 <= along < op.parallel_rank or op.sizes[along] != shared:
            raise VerifyException(f"{op.name} does not share the loop of the chain")
        if self.step.value.data < 1 or shared % self.step.value.data:
            raise VerifyException("an iteration takes an equal part of the shared loop")
        for value, map_ in readings(op):
            if value in made and not follows(map_, made[value], op.sizes, along):
                raise VerifyException(f"{map_} reads what another iteration computes")


def follows(map_: AffineMap | None, place: int, sizes: Shape, along: int) -> bool:
    """Whether a map reads, for each index of the loop `along`, at that index of axis `place`."""
    if map_ is None:
        return False
    users = [at for at, result in enumerate(map_.results) if along in result.used_dims()]
    return users == [place] and linear(map_.results[place], sizes) == linear(
        AffineExpr.dimension(along), sizes
    )
