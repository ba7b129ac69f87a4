"""Selections of data-dependent size: results up to a bound, then filler."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    Float32Type,
    IntegerAttr,
    IntegerType,
    Signedness,
    TensorType,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.interned import tensor_type, whole
from popgraph.dialects.tile.structured.ops import check_block
from popgraph.support.shapes import Shape, prod

KEY = IntegerType(64, Signedness.UNSIGNED)
"""The type of sort keys."""
RANK = IntegerType(32, Signedness.UNSIGNED)
"""The type of sort keys of `tile.suppress`, which need not be unique."""
F32 = Float32Type()
SIDES = 4
"""Coordinates of a box."""


@irdl_op_definition
class PositionsOp(IRDLOperation):
    """The positions of the true elements of a 1-D mask, ascending, then zeros; and their count."""

    name = "tile.positions"
    mask = operand_def(TensorType)
    output = result_def(TensorType)
    count = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$mask `:` type($mask) attr-dict `->` type($output) `,` type($count)"

    def __init__(self, mask: SSAValue) -> None:
        assert isinstance(mask.type, TensorType)
        Operation.__init__(
            self,
            operands=[mask],
            result_types=[tensor_type(i64, mask.type.get_shape()), tensor_type(i64, ())],
        )

    @property
    def sizes(self) -> Shape:
        """The length of the mask."""
        assert isinstance(self.mask.type, TensorType)
        return self.mask.type.get_shape()

    def verify_(self) -> None:
        assert isinstance(self.mask.type, TensorType) and isinstance(self.output.type, TensorType)
        if self.mask.type.element_type != i1 or len(self.sizes) != 1:
            raise VerifyException("the mask must be 1-D bool")
        if self.output.type.element_type != i64 or self.output.type.get_shape() != self.sizes:
            raise VerifyException("the result must have one i64 position per element of the mask")
        if self.count.type != TensorType(i64, ()):
            raise VerifyException("the count must be a scalar i64")


@irdl_op_definition
class CompressOp(IRDLOperation):
    """
    The slices of `data` at the first `count` positions along `axis`, flattened without gaps.

    The elements after them are undefined, and not read.
    """

    name = "tile.compress"
    data = operand_def(TensorType)
    positions = operand_def(TensorType)
    count = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    output = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$data `,` $positions `,` $count `:` type($data) `,` type($positions) `,` type($count) "
        "`axis` $axis attr-dict `->` type($output)"
    )

    def __init__(self, data: SSAValue, positions: SSAValue, count: SSAValue, axis: int) -> None:
        assert isinstance(data.type, TensorType) and isinstance(positions.type, TensorType)
        bound = prod(_sizes_of_kept(data.type, positions.type, axis))
        Operation.__init__(
            self,
            operands=[data, positions, count],
            properties={"axis": whole(axis)},
            result_types=[tensor_type(data.type.element_type, (bound,))],
        )

    @property
    def sizes(self) -> Shape:
        """The shape of the data with as many slices as may be kept."""
        data, positions = self.data.type, self.positions.type
        assert isinstance(data, TensorType) and isinstance(positions, TensorType)
        return _sizes_of_kept(data, positions, self.axis.value.data)

    def verify_(self) -> None:
        data, positions, count = (value.type for value in self.operands)
        assert isinstance(data, TensorType) and isinstance(positions, TensorType)
        if positions.element_type != i64 or len(positions.get_shape()) != 1:
            raise VerifyException("positions must be 1-D i64")
        if count != TensorType(i64, ()):
            raise VerifyException("the count must be a scalar i64")
        if not 0 <= self.axis.value.data < len(data.get_shape()):
            raise VerifyException(f"the data have no axis {self.axis.value.data}")
        if self.output.type != TensorType(data.element_type, (prod(self.sizes),)):
            raise VerifyException("the result must have room for as many slices as positions")


def _sizes_of_kept(
    data: TensorType[Attribute], positions: TensorType[Attribute], axis: int
) -> Shape:
    shape = data.get_shape()
    return (*shape[:axis], *positions.get_shape(), *shape[axis + 1 :])


@irdl_op_definition
class SuppressOp(IRDLOperation):
    """
    Greedy non-maximum suppression per row: positions of kept boxes, best first, then -1.

    `keys` [batches, rows, n] rank the boxes of a row: largest first, the lower position first among
    equals; key 0 excludes a box. `boxes` [batches, n, 4] hold one box per position; `corners`
    converts it to its low and high corners. A box is kept unless `body(kept corners, its corners,
    threshold)` is true for a kept one, until `limit` boxes are kept.

    `heap` and `kept` are scratch memory of the kernel; nothing reads them. In the heap, the lower
    half of a key is the complement of the position, so that all keys differ.
    """

    name = "tile.suppress"
    boxes = operand_def(TensorType)
    keys = operand_def(TensorType)
    limit = operand_def(TensorType)
    threshold = operand_def(TensorType)
    corners = region_def("single_block")
    body = region_def("single_block")
    positions = result_def(TensorType)
    heap = result_def(TensorType)
    kept = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$boxes `,` $keys `limit` $limit `threshold` $threshold `:` type($boxes) `,` type($keys) "
        "`,` type($limit) `,` type($threshold) `corners` $corners $body attr-dict "
        "`->` type($positions) `,` type($heap) `,` type($kept)"
    )

    def __init__(
        self, operands: Sequence[SSAValue], count: int, corners: Region, body: Region
    ) -> None:
        """`operands` are boxes, keys, limit and threshold; each row gets `count` positions."""
        assert isinstance(operands[1].type, TensorType)
        batches, rows, length = operands[1].type.get_shape()
        Operation.__init__(
            self,
            operands=operands,
            regions=[corners, body],
            result_types=[
                tensor_type(i64, (batches, rows, count)),
                tensor_type(KEY, (length,)),
                tensor_type(F32, (SIDES, padded(count))),
            ],
        )

    @property
    def sizes(self) -> Shape:
        """The number of batches, rows per batch and boxes per row."""
        assert isinstance(self.keys.type, TensorType)
        return self.keys.type.get_shape()

    @property
    def count(self) -> int:
        """The number of positions per row."""
        assert isinstance(self.positions.type, TensorType)
        return self.positions.type.get_shape()[-1]

    def verify_(self) -> None:
        types = [value.type for value in self.operands]
        assert all(isinstance(type_, TensorType) for type_ in types)
        if types[1].element_type != RANK or len(self.sizes) != 3:  # type: ignore[attr-defined]
            raise VerifyException("keys must be ui32[batches, rows, n]")
        batches, rows, length = self.sizes
        expected: list[Attribute] = [
            TensorType(F32, (batches, length, SIDES)),
            types[1],
            TensorType(i64, ()),
            TensorType(F32, ()),
        ]
        if types != expected:
            raise VerifyException("boxes must be f32[batches, n, 4], limit i64, threshold f32")
        made = [
            TensorType(i64, (batches, rows, self.count)),
            TensorType(KEY, (length,)),
            TensorType(F32, (SIDES, padded(self.count))),
        ]
        if [value.type for value in self.results] != made:
            raise VerifyException(
                "the results must be positions of each row, a heap and kept boxes"
            )
        check_block("corners", self.corners.block, [F32] * SIDES)
        check_block("body", self.body.block, [F32] * (2 * SIDES + 1))
        end = self.body.block.last_op
        if end is None or [value.type for value in end.operands] != [i1]:
            raise VerifyException("the body must yield whether a box is suppressed, a bool")


@irdl_op_definition
class OrderOp(IRDLOperation):
    """
    The positions of unsigned keys in ascending order of key; the sort is stable.

    Only the low `bits` of a key are nonzero. `sorting` and `places` are scratch memory of the
    kernel, two halves each; nothing reads them.
    """

    name = "tile.order"
    keys = operand_def(TensorType)
    bits = prop_def(IntegerAttr)
    positions = result_def(TensorType)
    sorting = result_def(TensorType)
    places = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$keys `:` type($keys) `bits` $bits attr-dict `->` type($positions) `,` type($sorting) "
        "`,` type($places)"
    )

    def __init__(self, keys: SSAValue, bits: int) -> None:
        assert isinstance(keys.type, TensorType)
        (length,) = keys.type.get_shape()
        types = _types_of_order(length)
        Operation.__init__(
            self, operands=[keys], properties={"bits": whole(bits)}, result_types=types
        )

    @property
    def sizes(self) -> Shape:
        """The number of keys."""
        assert isinstance(self.keys.type, TensorType)
        return self.keys.type.get_shape()

    def verify_(self) -> None:
        assert isinstance(self.keys.type, TensorType)
        if self.keys.type.element_type != KEY or len(self.sizes) != 1:
            raise VerifyException("keys must be 1-D ui64")
        if not 0 < self.bits.value.data <= 64:
            raise VerifyException("keys must have 1 to 64 bits")
        if [value.type for value in self.results] != _types_of_order(self.sizes[0]):
            raise VerifyException(
                "the results must be positions, and twice as many keys and places"
            )


def _types_of_order(length: int) -> list[Attribute]:
    return [
        tensor_type(i64, (length,)),
        tensor_type(KEY, (2 * length,)),
        tensor_type(i32, (2 * length,)),
    ]


@irdl_op_definition
class SegmentsOp(IRDLOperation):
    """
    Reduces the rows of each segment: `y[k, j] = fold of body over rows[starts[k]:ends[k], j]`.

    The fold starts at `initial`; `body(element, total)` yields the next total.
    """

    name = "tile.segments"
    rows = operand_def(TensorType)
    starts = operand_def(TensorType)
    ends = operand_def(TensorType)
    initial = prop_def(Attribute)
    body = region_def("single_block")
    output = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$rows `,` $starts `,` $ends `:` type($rows) `,` type($starts) `,` type($ends) "
        "`initial` $initial $body attr-dict `->` type($output)"
    )

    def __init__(self, operands: Sequence[SSAValue], initial: Attribute, body: Region) -> None:
        """`operands` are rows, starts and ends."""
        rows, starts = operands[0].type, operands[1].type
        assert isinstance(rows, TensorType) and isinstance(starts, TensorType)
        shape = (*starts.get_shape(), rows.get_shape()[1])
        Operation.__init__(
            self,
            operands=operands,
            properties={"initial": initial},
            regions=[body],
            result_types=[tensor_type(rows.element_type, shape)],
        )

    @property
    def sizes(self) -> Shape:
        """The number of segments, and the length of a row."""
        assert isinstance(self.output.type, TensorType)
        return self.output.type.get_shape()

    def verify_(self) -> None:
        rows, starts, ends, made = (value.type for value in (*self.operands, self.output))
        assert isinstance(rows, TensorType) and isinstance(starts, TensorType)
        if starts != ends or starts.element_type != i64 or len(starts.get_shape()) != 1:
            raise VerifyException("starts and ends must be 1-D i64 of equal length")
        if len(rows.get_shape()) != 2:
            raise VerifyException("rows must be a matrix")
        if made != TensorType(rows.element_type, (*starts.get_shape(), rows.get_shape()[1])):
            raise VerifyException("the result must have one row per segment")
        kind = rows.element_type
        check_block("body", self.body.block, [kind, self.initial.type])  # type: ignore[attr-defined]


def padded(count: int) -> int:
    """The capacity for boxes: whole vectors of any machine, and one spare vector."""
    return -(-count // LANES) * LANES + LANES


LANES = 16
"""Floats of the widest vectors, 64 bytes."""
