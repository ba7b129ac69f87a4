"""Reductions, including contractions: matmuls, convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    base,
    irdl_op_definition,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import operand_segment_sizes, tensor_type, whole
from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.dialects.tile.structured.ops import (
    Structured,
    check_block,
    element,
    indexed_dims,
    maps_attribute,
    yielded,
)
from popgraph.dialects.tile.structured.product import (
    FoldDirective,
    Product,
    accumulator_type,
    product_body,
    product_of,
    zero_of,
)


@dataclass(frozen=True)
class Blocks:
    """
    Blocked summation: the first `loops` loops of the reduction number blocks of terms.

    `body(sum, inputs...)` finishes the sum of a block before it is added to the total.
    """

    loops: int
    body: Region
    inputs: Sequence[SSAValue] = ()
    maps: Sequence[AffineMap] = ()
    """Maps over the parallel loops and the loops that number blocks."""


@irdl_op_definition
class ReduceOp(Structured):
    """
    Reductions of any kind, in index order.

    For each parallel index, accumulators start at `initial`; for each reduction index,
    `body(inputs..., accumulators...)` yields the next accumulators; `epilogue(accumulators...,
    inputs...)` yields the results. Maps of `epilogue_inputs` cover the parallel dimensions only.

    With `contracts` it is a contraction, a sum of products: `schedule` blocks its loops, without it
    they are plain. Matmuls, convolutions and their gradients have this form; the maps of a
    convolution contain sliding expressions such as `2*y + r`. The body multiplies the elements of
    two operands, or values computed from them (widened, or one of several packed in an element), or
    computes dot products of packed words. With `block`, the first `block_loops` loops of the
    reduction number blocks of terms: `block(sum, inputs...)` of each is added to the total.
    """

    name = "tile.reduce"
    inputs = var_operand_def(base(TensorType))
    epilogue_inputs = var_operand_def(base(TensorType))
    block_inputs = var_operand_def(base(TensorType))
    domain = prop_def(IntsAttr)
    parallel = prop_def(IntegerAttr)
    maps = prop_def(ArrayAttr[AffineMapAttr])
    epilogue_maps = prop_def(ArrayAttr[AffineMapAttr])
    initial = prop_def(ArrayAttr)
    contracts = opt_prop_def(UnitAttr)
    block_loops = opt_prop_def(IntegerAttr)
    block_maps = opt_prop_def(ArrayAttr[AffineMapAttr])
    schedule = opt_prop_def(ScheduleAttr)
    body = region_def("single_block")
    epilogue = region_def("single_block")
    block = opt_region_def("single_block")
    outputs = var_result_def(TensorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), EndsAtSizes())
    custom_directives = (FoldDirective,)
    assembly_format = (
        "(`ins` `(` $inputs^ `:` type($inputs) `)`)? "
        "(`epilogue_inputs` `(` $epilogue_inputs^ `:` type($epilogue_inputs) `)`)? "
        "(`block_inputs` `(` $block_inputs^ `:` type($block_inputs) `)`)? "
        "`domain` $domain `parallel` $parallel `maps` $maps `epilogue_maps` $epilogue_maps "
        "custom<FoldDirective>($contracts, $initial, $body, ref(type($inputs))) "
        "(`schedule` $schedule^)? `epilogue` $epilogue "
        "(`block` $block^ `loops` $block_loops `block_maps` $block_maps)? "
        "attr-dict `->` type($outputs)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        maps: Sequence[AffineMap],
        domain: Sequence[int],
        parallel: int,
        initial: Sequence[Attribute],
        body: Region,
        epilogue: Region,
        elements: Sequence[Attribute],
        epilogue_inputs: Sequence[SSAValue] = (),
        epilogue_maps: Sequence[AffineMap] = (),
        contracts: bool = False,
        schedule: ScheduleAttr | None = None,
        blocks: Blocks | None = None,
    ) -> None:
        properties: dict[str, Attribute] = {
            "domain": IntsAttr.of(domain),
            "parallel": whole(parallel),
            "maps": maps_attribute(maps),
            "epilogue_maps": maps_attribute(epilogue_maps),
            "initial": ArrayAttr(initial),
        }
        joined: Sequence[SSAValue] = ()
        regions = [body, epilogue]
        if contracts:
            properties["contracts"] = UnitAttr()
        if schedule is not None:
            properties["schedule"] = schedule
        if blocks is not None:
            joined = blocks.inputs
            properties["block_loops"] = whole(blocks.loops)
            properties["block_maps"] = maps_attribute(blocks.maps)
            regions.append(blocks.body)
        properties |= operand_segment_sizes(len(inputs), len(epilogue_inputs), len(joined))
        Operation.__init__(
            self,
            operands=[*inputs, *epilogue_inputs, *joined],
            properties=properties,
            regions=regions,
            result_types=[tensor_type(element_, domain[:parallel]) for element_ in elements],
        )

    @property
    def parallel_rank(self) -> int:
        return self.parallel.value.data

    @property
    def mapped_epilogue_inputs(self) -> tuple[SSAValue, ...]:
        """`epilogue_inputs`, without the cost of xDSL's lookup."""
        first = len(self.maps)
        return tuple(self.operands[first : first + len(self.epilogue_maps)])

    # Contractions

    @property
    def lhs(self) -> SSAValue:
        return self.operands[0]

    @property
    def rhs(self) -> SSAValue:
        return self.operands[1]

    @property
    def product(self) -> Product:
        """The product that the body adds."""
        found = product_of(self.body.block)
        assert found is not None, "verified"
        return found

    @property
    def words(self) -> StringAttr | None:
        """The packing of the operands, if the body computes dot products of packed words."""
        return self.product.words

    @property
    def blocked_rank(self) -> int:
        """The number of leading loops outside of blocks of terms."""
        return self.parallel_rank + (self.block_loops.value.data if self.block_loops else 0)

    @property
    def looks_up_factors(self) -> bool:
        """Whether the body uses indices, to select one of several numbers packed in an element."""
        return bool(indexed_dims(self.body.block))

    @property
    def uses_loop_numbers(self) -> bool:
        """Whether something other than maps depends on loop numbers."""
        return self.block is not None or self.looks_up_factors

    @property
    def blocks(self) -> Blocks | None:
        """The blocked summation with a copy of its body; None without."""
        if self.block is None:
            return None
        loops = self.blocked_rank - self.parallel_rank
        return Blocks(loops, self.block.clone(), tuple(self.block_inputs), self.block_input_maps)

    @property
    def block_input_maps(self) -> tuple[AffineMap, ...]:
        return tuple(map_.data for map_ in self.block_maps or ())

    @property
    def sum_type(self) -> Attribute:
        """The type of the accumulator of products."""
        return self.body.block.args[-1].type

    @property
    def total_type(self) -> Attribute:
        """The type of the epilogue's first argument."""
        kind = self.sum_type if self.block is None else yielded(self.block.block)[0].type
        assert isinstance(kind, Attribute)
        return kind

    @property
    def mapped(self) -> list[tuple[SSAValue, AffineMap]]:
        """
        Every operand and result, with its map from domain indices.

        Only maps of the two multiplied operands use all reduction indices; others use parallel
        indices, and indices that number blocks.
        """
        maps = [*self.input_maps, *self.epilogue_input_maps, *self.block_input_maps]
        maps += [AffineMap.identity(self.parallel_rank)] * len(self.outputs)
        return list(zip((*self.operands, *self.outputs), maps, strict=True))

    def verify_(self) -> None:
        outer = self.sizes[: self.parallel_rank]
        self.check_maps(self.inputs, self.input_maps, self.sizes)
        self.check_maps(self.epilogue_inputs, self.epilogue_input_maps, outer)
        self.check_results()
        totals = [attribute.type for attribute in self.initial]
        check_block("body", self.body.block, [*map(element, self.inputs), *totals])
        if self.contracts is not None:
            self._check_product()
        elif self.schedule is not None or self.block is not None:
            raise VerifyException("only contractions may have a schedule or blocks of terms")
        self._check_blocks()
        if self.block is not None:
            totals = [self.total_type]
        expected = [*totals, *map(element, self.epilogue_inputs)]
        check_block("epilogue", self.epilogue.block, expected)

    def _check_product(self) -> None:
        if product_of(self.body.block) is None:
            raise VerifyException("the body must add the product of both inputs to a sum")
        if list(self.initial) != [zero_of(self.sum_type)]:
            raise VerifyException("sums of products must start at zero")
        if any(dim < self.parallel_rank for dim in indexed_dims(self.body.block)):
            raise VerifyException("multiplied values must not depend on parallel indices")

    def _check_blocks(self) -> None:
        if self.block is None:
            if self.block_loops or self.block_inputs:
                raise VerifyException("blocks of terms need a body that finishes their sums")
            return
        if not self.parallel_rank < self.blocked_rank <= len(self.sizes):
            raise VerifyException("block_loops must be between 1 and the number of reduction loops")
        self.check_maps(self.block_inputs, self.block_input_maps, self.sizes[: self.blocked_rank])
        expected = [self.sum_type, *map(element, self.block_inputs)]
        check_block("block", self.block.block, expected)


def is_contraction(op: object) -> TypeGuard[ReduceOp]:
    """Whether an operation is a contraction: a sum of products with blocked loops."""
    return isinstance(op, ReduceOp) and "contracts" in op.properties


def contraction(
    lhs: SSAValue,
    rhs: SSAValue,
    maps: Sequence[AffineMap],
    domain: Sequence[int],
    parallel: int,
    epilogue: Region,
    elements: Sequence[Attribute],
    epilogue_inputs: Sequence[SSAValue] = (),
    epilogue_maps: Sequence[AffineMap] = (),
    words: StringAttr | None = None,
) -> ReduceOp:
    """Sums of products of elements, or dot products of packed `words`."""
    kinds = element(lhs), element(rhs)
    total = accumulator_type(kinds[0], words)
    return ReduceOp(
        [lhs, rhs],
        maps,
        domain,
        parallel,
        [zero_of(total)],
        product_body([*kinds, total], words),
        epilogue,
        elements,
        epilogue_inputs,
        epilogue_maps,
        contracts=True,
    )
