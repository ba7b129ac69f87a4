"""Sums of products, in which matrix products, convolutions and their gradients are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    f32,
    i32,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
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

from popgraph.dialects.element_types import of_sums
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import operand_segment_sizes, tensor_type, whole
from popgraph.dialects.tile.attributes import NamedNumbers, ScheduleAttr
from popgraph.dialects.tile.lanes import PickOp
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.dialects.tile.scalars import widens
from popgraph.dialects.tile.structured.ops import (
    IndexOp,
    Structured,
    check_block,
    element,
    maps_attribute,
    yielded,
)
from popgraph.support.words import WORD, WORDS


@irdl_attr_definition
class PartsAttr(NamedNumbers):
    """
    What numbers stand side by side in an element of 32 bits, the first in the lowest bits.

    At index i of dimension `dim`, `(element >> i * bits) & mask` is meant.
    """

    name = "tile.parts"
    dim: IntAttr
    bits: IntAttr
    mask: IntAttr

    FIELDS: ClassVar = ("dim", "bits", "mask")

    def part(self, elements: Any, index: Any) -> Any:
        """What stands at an index of `dim`."""
        return (elements >> (index * self.bits.data).astype(WORD)) & WORD.type(self.mask.data)


def part_operations(
    parts: PartsAttr, elements: SSAValue, numbers: ArrayAttr[FloatAttr] | None = None
) -> list[Operation]:
    """What finds, in a body, the number that stands in an element at the current index."""
    dim = IndexOp(parts.dim.data)
    index = arith.IndexCastOp(dim, i32)
    bits = arith.ConstantOp(IntegerAttr(parts.bits.data, i32))
    places = arith.MuliOp(index, bits)
    shifted = arith.ShRSIOp(elements, places)
    found = [dim, index, bits, places, shifted]
    if numbers is not None:
        return [*found, PickOp(numbers, shifted)]
    mask = arith.ConstantOp(IntegerAttr(parts.mask.data, i32))
    return [*found, mask, arith.AndIOp(shifted, mask)]


def parts_of(value: SSAValue, elements: SSAValue) -> PartsAttr | None:
    """Which parts of elements a body gives, if it is as `part_operations` writes it."""
    match value.owner:
        case arith.AndIOp(
            lhs=SSAValue(owner=arith.ShRSIOp(lhs=source, rhs=SSAValue(owner=arith.MuliOp() as at))),
            rhs=SSAValue(owner=arith.ConstantOp(value=IntegerAttr(value=mask))),
        ) if source is elements:
            index, bits = at.lhs.owner, at.rhs.owner
            if isinstance(index, arith.IndexCastOp) and isinstance(bits, arith.ConstantOp):
                dim = index.input.owner
                if isinstance(dim, IndexOp) and isinstance(bits.value, IntegerAttr):
                    return PartsAttr.of(
                        dim=dim.dim.value.data, bits=bits.value.value.data, mask=mask.data
                    )
    return None


def type_of_sums(lhs: SSAValue, words: StringAttr | None) -> Attribute:
    """The type of sums of products: of words, the one that sums of what they hold have."""
    return element(lhs) if words is None else of_sums(words.data)


@dataclass(frozen=True)
class Blocks:
    """
    Sums in blocks of terms: the first `loops` of the reduction number them.

    What `body(sum, inputs...)` makes of the sum of a block is added to the total.
    """

    loops: int
    body: Region
    inputs: Sequence[SSAValue] = ()
    maps: Sequence[AffineMap] = ()
    """Over the parallel loops and those that number the blocks."""


@irdl_op_definition
class ContractOp(Structured):
    """
    Sums of products: `y[p] = epilogue(sum over r of lhs[map0(p, r)] * rhs[map1(p, r)], inputs...)`.

    Matrix products, convolutions and their gradients are all of this form; a convolution's maps
    contain sliding expressions such as `2*y + r`. `schedule` says how it is blocked; without one
    it is computed by plain loops. Where elements are `words` that hold several small numbers each,
    the product of two words is the sum of the products of what they hold. The right factor may be
    stored in fewer bits: its elements become numbers of the left one's type as they are read; or
    several of its numbers are `parts` of an element, or choose from `numbers`. With `block`, the
    first `block_loops` of the reduction number blocks of terms: `block(sum, inputs...)` of each is
    added to the total.
    """

    name = "tile.contract"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    epilogue_inputs = var_operand_def(base(TensorType))
    block_inputs = var_operand_def(base(TensorType))
    domain = prop_def(IntsAttr)
    parallel = prop_def(IntegerAttr)
    maps = prop_def(ArrayAttr[AffineMapAttr])
    epilogue_maps = prop_def(ArrayAttr[AffineMapAttr])
    words = opt_prop_def(StringAttr)
    parts = opt_prop_def(PartsAttr)
    numbers = opt_prop_def(ArrayAttr[FloatAttr])
    block_loops = opt_prop_def(IntegerAttr)
    block_maps = opt_prop_def(ArrayAttr[AffineMapAttr])
    schedule = opt_prop_def(ScheduleAttr)
    epilogue = region_def("single_block")
    block = opt_region_def("single_block")
    outputs = var_result_def(TensorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), EndsAtSizes())
    assembly_format = (
        "$lhs `,` $rhs `:` type($lhs) `,` type($rhs) "
        "(`epilogue_inputs` `(` $epilogue_inputs^ `:` type($epilogue_inputs) `)`)? "
        "(`block_inputs` `(` $block_inputs^ `:` type($block_inputs) `)`)? "
        "`domain` $domain `parallel` $parallel `maps` $maps `epilogue_maps` $epilogue_maps "
        "(`words` $words^)? (`parts` $parts^)? (`numbers` $numbers^)? (`schedule` $schedule^)? "
        "`epilogue` $epilogue "
        "(`block` $block^ `loops` $block_loops `block_maps` $block_maps)? "
        "attr-dict `->` type($outputs)"
    )

    def __init__(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        maps: Sequence[AffineMap],
        domain: Sequence[int],
        parallel: int,
        epilogue: Region,
        elements: Sequence[Attribute],
        epilogue_inputs: Sequence[SSAValue] = (),
        epilogue_maps: Sequence[AffineMap] = (),
        schedule: ScheduleAttr | None = None,
        words: StringAttr | None = None,
        parts: PartsAttr | None = None,
        numbers: ArrayAttr[FloatAttr] | None = None,
        blocks: Blocks | None = None,
    ) -> None:
        joined = list(blocks.inputs) if blocks else []
        properties: dict[str, Attribute | None] = {
            "domain": IntsAttr.of(domain),
            "parallel": whole(parallel),
            "maps": maps_attribute(maps),
            "epilogue_maps": maps_attribute(epilogue_maps),
            "schedule": schedule,
            "words": words,
            "parts": parts,
            "numbers": numbers,
            "block_loops": whole(blocks.loops) if blocks else None,
            "block_maps": maps_attribute(blocks.maps) if blocks else None,
            **operand_segment_sizes(1, 1, len(epilogue_inputs), len(joined)),
        }
        Operation.__init__(
            self,
            operands=[lhs, rhs, *epilogue_inputs, *joined],
            properties={name: value for name, value in properties.items() if value is not None},
            regions=[epilogue, blocks.body] if blocks else [epilogue],
            result_types=[tensor_type(element_, domain[:parallel]) for element_ in elements],
        )

    @property
    def parallel_rank(self) -> int:
        return self.parallel.value.data

    @property
    def blocked_rank(self) -> int:
        """How many leading loops tell blocks of terms apart: all that do not run inside of one."""
        return self.parallel_rank + (self.block_loops.value.data if self.block_loops else 0)

    @property
    def numbers_loops(self) -> bool:
        """Whether something but its maps tells loops by their number."""
        return self.parts is not None or self.block is not None

    @property
    def blocks(self) -> Blocks | None:
        """The blocks of terms, with a copy of their body, if there are any."""
        if self.block is None:
            return None
        loops = self.blocked_rank - self.parallel_rank
        return Blocks(loops, self.block.clone(), tuple(self.block_inputs), self.block_input_maps)

    @property
    def block_input_maps(self) -> tuple[AffineMap, ...]:
        return tuple(map_.data for map_ in self.block_maps or ())

    @property
    def sum_type(self) -> Attribute:
        """The type of the sums of products."""
        return type_of_sums(self.lhs, self.words)

    @property
    def total_type(self) -> Attribute:
        """The type of what the epilogue takes first."""
        kind = self.sum_type if self.block is None else yielded(self.block.block)[0].type
        assert isinstance(kind, Attribute)
        return kind

    @property
    def mapped(self) -> list[tuple[SSAValue, AffineMap]]:
        """
        Every operand and result, with where the element of a domain index stands in it.

        What is no factor depends on parallel indices only, or on those of blocks.
        """
        maps = [*self.input_maps, *self.epilogue_input_maps, *self.block_input_maps]
        maps += [AffineMap.identity(self.parallel_rank)] * len(self.outputs)
        return list(zip((*self.operands, *self.outputs), maps, strict=True))

    def verify_(self) -> None:
        outer = self.sizes[: self.parallel_rank]
        self.check_maps([self.lhs, self.rhs], self.input_maps, self.sizes)
        self.check_maps(self.epilogue_inputs, self.epilogue_input_maps, outer)
        self.check_results()
        if self.parts is None and not widens(element(self.rhs), element(self.lhs)):
            raise VerifyException(
                f"factors of {element(self.rhs)} are not read as {element(self.lhs)}"
            )
        if self.words is not None and (element(self.lhs) != i32 or self.words.data not in WORDS):
            raise VerifyException(f"words {self.words} are not elements {element(self.lhs)}")
        self._check_parts()
        self._check_blocks()
        expected = [self.total_type, *map(element, self.epilogue_inputs)]
        check_block("epilogue", self.epilogue.block, expected)

    def _check_parts(self) -> None:
        if self.parts is None:
            if self.numbers is not None:
                raise VerifyException("it is parts of elements that choose from numbers")
            return
        dim, bits = self.parts.dim.data, self.parts.bits.data
        if not self.parallel_rank <= dim < len(self.sizes):
            raise VerifyException("parts of an element stand along a loop of the reduction")
        if dim in self.input_maps[1].used_dims():
            raise VerifyException("all parts along a loop stand in one element")
        if element(self.rhs) != i32 or (self.sizes[dim] - 1) * bits >= 8 * WORD.itemsize:
            raise VerifyException(f"{self.sizes[dim]} parts of {bits} bits need an i32")
        if self.numbers is None:
            return
        if element(self.lhs) != f32 or len(self.numbers) != self.parts.mask.data + 1:
            raise VerifyException(f"parts choose from {self.parts.mask.data + 1} numbers of f32")

    def _check_blocks(self) -> None:
        if self.block is None:
            if self.block_loops or self.block_inputs:
                raise VerifyException("blocks of terms need a body that finishes their sums")
            return
        if not self.parallel_rank < self.blocked_rank <= len(self.sizes):
            raise VerifyException("blocks of terms are numbered by loops of the reduction")
        self.check_maps(self.block_inputs, self.block_input_maps, self.sizes[: self.blocked_rank])
        expected = [self.sum_type, *map(element, self.block_inputs)]
        check_block("block", self.block.block, expected)
