"""Structured operations that move elements: assembly, views, packing."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.attributes import halo_of, physical_shape
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.dialects.tile.structured.ops import element
from popgraph.support.shapes import Shape, prod


@irdl_op_definition
class AssembleOp(IRDLOperation):
    """
    A tensor assembled from pieces: concatenation, padding, interior padding.

    Piece `i` begins at `offsets[i]`; along each dimension, its elements have stride `steps[i]`.
    Both attributes hold one number per piece and dimension. Elements that no piece covers are
    `fill`. Pieces do not overlap.
    """

    name = "tile.assemble"
    pieces = var_operand_def(base(TensorType))
    offsets = prop_def(IntsAttr)
    steps = prop_def(IntsAttr)
    fill = prop_def()
    output = result_def(TensorType)
    traits = traits_def(Pure(), EndsAtSizes(by_result=True))
    assembly_format = (
        "`(` $pieces `:` type($pieces) `)` `offsets` $offsets `steps` $steps `fill` $fill "
        "attr-dict `->` type($output)"
    )

    def __init__(
        self,
        pieces: Sequence[SSAValue],
        offsets: Sequence[Sequence[int]],
        steps: Sequence[Sequence[int]],
        fill: Attribute,
        result_type: TensorType[Attribute],
    ) -> None:
        Operation.__init__(
            self,
            operands=pieces,
            properties={
                "offsets": IntsAttr.of([offset for piece in offsets for offset in piece]),
                "steps": IntsAttr.of([step for piece in steps for step in piece]),
                "fill": fill,
            },
            result_types=[result_type],
        )

    def placements(self) -> list[tuple[SSAValue, Shape, Shape]]:
        """(piece, offsets, steps) of each piece."""
        assert isinstance(self.output.type, TensorType)
        rank = self.output.type.get_num_dims()
        offsets, steps = self.offsets.data, self.steps.data
        return [
            (
                piece,
                tuple(offsets[number * rank : (number + 1) * rank]),
                tuple(steps[number * rank : (number + 1) * rank]),
            )
            for number, piece in enumerate(self.pieces)
        ]

    def verify_(self) -> None:
        assert isinstance(self.output.type, TensorType)
        shape = self.output.type.get_shape()
        if not len(self.offsets) == len(self.steps) == len(shape) * len(self.pieces):
            raise VerifyException(
                "an assembly needs one offset and one step per piece and dimension"
            )
        for piece, offsets, steps in self.placements():
            assert isinstance(piece.type, TensorType)
            for size, offset, step, limit in zip(
                piece.type.get_shape(), offsets, steps, shape, strict=True
            ):
                if offset < 0 or step < 1 or (size and offset + (size - 1) * step >= limit):
                    raise VerifyException(f"a piece of {piece.type} exceeds the result")
            self._check_ends(piece.type)

    def _check_ends(self, piece: TensorType[Attribute]) -> None:
        """Refuses a halo along the dimension of a shared memory: no piece would zero it."""
        assert isinstance(self.output.type, TensorType)
        own, halo = halo_of(piece), halo_of(self.output.type)
        if own is None or halo is None or own.part in (-1, halo.part):
            return
        if halo.low[own.part] or halo.high[own.part]:
            raise VerifyException(f"no piece zeroes the halo along dimension {own.part}")


@irdl_op_definition
class ViewOp(IRDLOperation):
    """
    The same memory with another shape, both row-major; the elements may become packed words.

    Halos keep their positions: only dimensions without one are merged or split.
    """

    name = "tile.view"
    source = operand_def(TensorType)
    output = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$source `:` type($source) `->` type($output) attr-dict"

    def __init__(
        self, source: SSAValue | Operation, shape: Sequence[int], words: Attribute | None = None
    ) -> None:
        value = SSAValue.get(source)
        type_ = tensor_type(words or element(value), shape)
        Operation.__init__(self, operands=[value], result_types=[type_])
        self.verify_()

    def verify_(self) -> None:
        source, output = self.source.type, self.output.type
        assert isinstance(source, TensorType) and isinstance(output, TensorType)
        each = [element_bytes(type_) for type_ in (source, output)]
        for sizes in (TensorType.get_shape, physical_shape):
            if prod(sizes(source)) * each[0] != prod(sizes(output)) * each[1]:
                raise VerifyException("a view must keep the number of bytes")


@irdl_op_definition
class PackOp(IRDLOperation):
    """
    The same value in the layout of the result; unused physical elements become zero.

    A result without a layout is dense and row-major.
    """

    name = "tile.pack"
    source = operand_def(TensorType)
    output = result_def(TensorType)
    traits = traits_def(Pure(), EndsAtSizes(by_result=True))
    assembly_format = "$source `:` type($source) `->` type($output) attr-dict"

    def __init__(self, source: SSAValue | Operation, result_type: TensorType[Attribute]) -> None:
        Operation.__init__(self, operands=[SSAValue.get(source)], result_types=[result_type])

    def verify_(self) -> None:
        source, output = self.source.type, self.output.type
        assert isinstance(source, TensorType) and isinstance(output, TensorType)
        if source.get_shape() != output.get_shape() or source.element_type != output.element_type:
            raise VerifyException("packing must keep the shape and the element type")
