"""`tile.chain`: contractions fused along channels, with a line buffer between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr, IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
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
from popgraph.dialects.tile.attributes import NamedNumbers
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.dialects.tile.structured.contract import ContractOp
from popgraph.dialects.tile.structured.nest import readings
from popgraph.dialects.tile.structured.ops import YieldOp, yielded
from popgraph.support.shapes import Shape


@irdl_attr_definition
class LineBufferAttr(NamedNumbers):
    """
    A line buffer between two contractions, the producer and the consumer.

    The consumer takes `rows` steps of its loop `consumer_dim` at a time. Before them the producer
    computes those steps of its loop `producer_dim` that these need and the buffer does not hold.
    The steps fall into `splits` equal parts that run in parallel; each first recomputes the overlap
    with the part before.
    In text: `#tile.line_buffer<producer_dim 1, consumer_dim 1, rows 4, splits 2>`.
    """

    name = "tile.line_buffer"
    producer_dim: IntAttr
    consumer_dim: IntAttr
    rows: IntAttr
    splits: IntAttr

    FIELDS: ClassVar = ("producer_dim", "consumer_dim", "rows", "splits")

    @property
    def loops(self) -> tuple[int, int]:
        """The loop of each contraction."""
        return self.producer_dim.data, self.consumer_dim.data

    def verify(self) -> None:
        if self.producer_dim.data < 0 or self.consumer_dim.data < 0:
            raise VerifyException("a line buffer goes along a loop of each contraction")
        if self.rows.data < 1 or self.splits.data < 1:
            raise VerifyException("a line buffer has rows, and one split or more")


@irdl_op_definition
class ChainOp(IRDLOperation):
    """
    Contractions that share one loop and read one another, run together for a part of that loop.

    The shared loop is dimension `along[i]` of contraction `i`. An iteration takes `step` of its
    indices: it runs the first contraction for these, then the next. What the body computes and
    does not yield lives in local memory for one iteration, its halo with it, so it is only read at
    the same shared index, but anywhere else. The meaning is that of the contractions one after the
    other.

    With a `line_buffer`, local memory holds the rows that one step reads, and no more.
    """

    name = "tile.chain"
    inputs = var_operand_def(base(TensorType))
    along = prop_def(IntsAttr)
    step = prop_def(IntegerAttr)
    line_buffer = opt_prop_def(LineBufferAttr)
    body = region_def("single_block")
    output = result_def(TensorType)
    traits = traits_def(IsolatedFromAbove(), Pure(), EndsAtSizes())
    assembly_format = (
        "`ins` `(` $inputs `:` type($inputs) `)` `along` $along `step` $step "
        "(`line_buffer` $line_buffer^)? $body attr-dict `->` type($output)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        along: Sequence[int],
        step: int,
        body: Block,
        type_: Attribute,
        line_buffer: LineBufferAttr | None = None,
    ) -> None:
        super().__init__(
            operands=[inputs],
            properties={
                "along": IntsAttr.of(along),
                "step": IntegerAttr(step, i64),
                "line_buffer": line_buffer,
            },
            regions=[Region(body)],
            result_types=[type_],
        )

    @property
    def chained(self) -> list[ContractOp]:
        """The contractions in order; nothing else may stand in the body, and be passed over."""
        *inner, _ = self.body.block.ops
        found = [op for op in inner if isinstance(op, ContractOp)]
        assert len(found) == len(inner), "what does not run in a chain stands in one"
        return found

    @property
    def sizes(self) -> Shape:
        """The extents of the loops of the last contraction, which are those of the chain."""
        return self.chained[-1].sizes

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The value in the body that is the result."""
        return yielded(self.body.block)

    @property
    def geometry(self) -> LineBufferGeometry | None:
        """How the consumer goes along the producer, if there is a line buffer between them."""
        if self.line_buffer is None:
            return None
        first, second = self.chained
        maps = [map_ for value, map_ in readings(second) if value is first.results[0]]
        if len(maps) != 1 or maps[0] is None:
            return None
        return LineBufferGeometry.of(
            first, second, maps[0], self.line_buffer.loops, self.line_buffer.rows.data
        )

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
        self._check_line_buffer()

    def _check_line_buffer(self) -> None:
        if self.line_buffer is None:
            return
        along, loops = self.along.data, self.line_buffer.loops
        if len(along) != 2 or any(loop == other for loop, other in zip(loops, along, strict=True)):
            raise VerifyException(
                "a line buffer joins two contractions along other loops than the chain"
            )
        if self.geometry is None:
            raise VerifyException("the steps of a line buffer do not read one after the other")
        if self.geometry.steps % self.line_buffer.splits.data:
            raise VerifyException("splits have equally many steps")

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


@dataclass(frozen=True)
class LineBufferGeometry:
    """
    A loop of the consumer that goes along a loop of the producer, `rows` iterations in a step.

    Step `y` reads what the other makes at `stride * y + low` and `span - 1` behind it.
    """

    loops: tuple[int, int]
    extents: tuple[int, int]
    """How many steps these loops have."""
    rows: int
    stride: int
    low: int
    span: int

    @staticmethod
    def of(
        first: ContractOp, second: ContractOp, map_: AffineMap, loops: Sequence[int], rows: int
    ) -> LineBufferGeometry | None:
        """That of two contractions, the second reading the first by this map; None if none."""
        made, reader = loops
        if not (0 <= made < first.parallel_rank and 0 <= reader < second.parallel_rank):
            return None
        users = [at for at, result in enumerate(map_.results) if reader in result.used_dims()]
        form = linear(map_.results[made], second.sizes)
        others = map_.results[made].used_dims() - {reader}
        stride = form.stride(reader)
        if users != [made] or stride is None or any(dim < second.parallel_rank for dim in others):
            return None
        low, high = form.bounds([1 if d == reader else n for d, n in enumerate(second.sizes)])
        extents = first.sizes[made], second.sizes[reader]
        found = LineBufferGeometry((made, reader), extents, rows, stride, low, high - low + 1)
        return found if found.is_even() else None

    def is_even(self) -> bool:
        """Whether all steps are alike, except that the last one may produce fewer rows."""
        return (
            0 < self.rows < self.extents[1]
            and self.extents[1] % self.rows == 0
            and self.stride > 0
            and self.low <= 0
            and self.overlap >= 0
            and self.prologue >= 0
            and self.tail < self.produced
        )

    @property
    def steps(self) -> int:
        return self.extents[1] // self.rows

    @property
    def produced(self) -> int:
        """The rows that a step produces."""
        return self.rows * self.stride

    @property
    def overlap(self) -> int:
        """The rows that the next step reads again."""
        return self.span - self.stride

    @property
    def prologue(self) -> int:
        """The rows that must be there before the first step."""
        return self.low + self.overlap

    @property
    def buffer_rows(self) -> int:
        """The rows that one step reads."""
        return self.produced + self.overlap

    @property
    def tail(self) -> int:
        """The rows past the end that the last step reads."""
        return max(0, self.steps * self.produced + self.prologue - self.extents[0])


def follows(map_: AffineMap | None, place: int, sizes: Shape, along: int) -> bool:
    """Whether a map reads, for each index of the loop `along`, at that index of axis `place`."""
    if map_ is None:
        return False
    users = [at for at, result in enumerate(map_.results) if along in result.used_dims()]
    return users == [place] and linear(map_.results[place], sizes) == linear(
        AffineExpr.dimension(along), sizes
    )
