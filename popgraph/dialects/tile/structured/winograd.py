"""Winograd convolutions and tile transforms as structured operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Data, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import operand_segment_sizes, whole
from popgraph.dialects.tile.affine import leaves
from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.dialects.tile.structured.ops import Structured, check_block, element, maps_attribute
from popgraph.support.shapes import prod

Matrix = tuple[tuple[float, ...], ...]

TAPS = 3
"""The window is this high and wide."""


@dataclass(frozen=True)
class Transforms:
    """
    The matrices of F(m, 3): `y = A^T [(G g) * (B^T d)]`, in two dimensions from both sides.

    `input` is B^T, `weights` is G, `output` is A^T. The gradient of the weights has the same
    matrices, transposed: `dg = G^T [(B^T d) * (A dy)]`.
    """

    input: Matrix
    weights: Matrix
    output: Matrix

    @property
    def side(self) -> int:
        """A tile of the input is this high and wide."""
        return len(self.input)

    @property
    def gradient(self) -> Matrix:
        """A: what tiles of a convolution's gradient become."""
        return tuple(zip(*self.output, strict=True))


@cache
def transforms(size: int) -> Transforms:
    """
    For tiles of `size` x `size` results.

    Of size 4 with the points 0, +-1/sqrt(2), +-sqrt(2) and infinity, which round less than whole
    numbers do.
    """
    if size == 2:
        return Transforms(
            ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
            ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
            ((1, 1, 1, 0), (0, 1, -1, -1)),
        )
    s, h = sqrt(2), sqrt(0.5)
    return Transforms(
        (
            (1, 0, -2.5, 0, 1, 0),
            (0, s, 2, -h, -1, 0),
            (0, -s, 2, h, -1, 0),
            (0, -h, -0.5, s, 1, 0),
            (0, h, -0.5, -s, 1, 0),
            (0, 1, 0, -2.5, 0, 1),
        ),
        (
            (1, 0, 0),
            (2 / 3, s / 3, 1 / 3),
            (2 / 3, -s / 3, 1 / 3),
            (1 / 6, s / 6, 1 / 3),
            (1 / 6, -s / 6, 1 / 3),
            (0, 0, 1),
        ),
        (
            (1, 1, 1, 1, 1, 0),
            (0, h, -h, s, -s, 0),
            (0, 0.5, 0.5, 2, 2, 0),
            (0, h / 2, -h / 2, 2 * s, -2 * s, 1),
        ),
    )


class Tiled(Structured):
    """
    An operation on images in tiles; the first dimensions of its domain are image, row and column.

    A tile has `size` x `size` results. Those of the last row and column are moved in, so that they
    end where the image ends.
    """

    @property
    def parallel_rank(self) -> int:
        return len(self.sizes)

    @property
    def transforms(self) -> Transforms:
        return transforms(self.size.value.data)  # type: ignore[attr-defined]

    @property
    def grid(self) -> tuple[int, int]:
        """How many tiles there are along the height and the width."""
        _, height, width = self.sizes[:3]
        size = self.size.value.data  # type: ignore[attr-defined]
        return -(-height // size), -(-width // size)

    @property
    def tile_count(self) -> int:
        return self.sizes[0] * prod(self.grid)

    def check_tiles(self) -> None:
        size = self.size.value.data  # type: ignore[attr-defined]
        if size not in (2, 4) or len(self.offset) != 2:  # type: ignore[attr-defined]
            raise VerifyException("tiles of an image are 2x2 or 4x4")
        if min(self.sizes[1:3]) < size:
            raise VerifyException(f"a tile of {size}x{size} is larger than the image")

    def check_image(self, image: TensorType[Attribute], window: int) -> None:
        """What windows read is in the image, or in its halo."""
        n, y, x, row, column, channel = (AffineExpr.dimension(dim) for dim in range(6))
        down, right = self.offset.data  # type: ignore[attr-defined]
        map_ = AffineMap(6, 0, (n, y + row + down, x + column + right, channel))
        sizes = (*self.sizes[:3], window, window, image.get_shape()[-1])
        if leaves(image, map_, sizes):
            raise VerifyException(f"windows leave {image} over {list(self.sizes[:3])}")


@irdl_attr_definition
class MatrixAttr(Data[Matrix]):
    """A constant matrix, row by row: `#tile.matrix<[1.0, 0.0], [0.5, -2.0]>`."""

    name = "tile.matrix"

    @staticmethod
    def of(rows: Matrix) -> MatrixAttr:
        return MatrixAttr(tuple(tuple(map(float, row)) for row in rows))

    def print_parameter(self, printer: Printer) -> None:
        rows = (", ".join(format(number, "#") for number in row) for row in self.data)
        with printer.in_angle_brackets():
            printer.print_string(", ".join(f"[{row}]" for row in rows))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Matrix:
        def row() -> tuple[float, ...]:
            numbers = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: float(parser.parse_number())
            )
            return tuple(numbers)

        return tuple(parser.parse_comma_separated_list(parser.Delimiter.ANGLE, row))


@irdl_op_definition
class TransformTilesOp(Tiled):
    """
    Tiles of `x`, which is `[n, y, x, c]`, multiplied by a matrix from both sides: `M tile M^T`.

    The domain is `[n, y, x]` of a convolution's result, with a tile for each `size` x `size` of
    them. The tile of the results from (y, x) on begins at `(y, x) + offset`, as high and wide as
    the matrix has columns. The result is `[row * rows + column, tile, c]`.

    Larger tiles share the elements between them. Where tiles of `size` were moved in, the elements
    that two have count in the first one, and are 0 in the other.
    """

    name = "tile.transform_tiles"
    x = operand_def(TensorType)
    domain = prop_def(IntsAttr)
    offset = prop_def(IntsAttr)
    size = prop_def(IntegerAttr)
    matrix = prop_def(MatrixAttr)
    output = result_def(TensorType)
    traits = traits_def(Pure(), EndsAtSizes(by_result=True))
    assembly_format = (
        "$x `:` type($x) `domain` $domain `offset` $offset `size` $size `matrix` $matrix attr-dict "
        "`->` type($output)"
    )

    def __init__(
        self,
        x: SSAValue,
        domain: Sequence[int],
        offset: Sequence[int],
        size: int,
        matrix: Matrix,
        result_type: TensorType[Attribute],
    ) -> None:
        Operation.__init__(
            self,
            operands=[x],
            properties={
                "domain": IntsAttr.of(domain),
                "offset": IntsAttr.of(offset),
                "size": whole(size),
                "matrix": MatrixAttr.of(matrix),
            },
            result_types=[result_type],
        )

    @property
    def shares_elements(self) -> bool:
        """Whether tiles overlap, so that an element counts in all that it is in."""
        return len(self.matrix.data[0]) > self.size.value.data

    def verify_(self) -> None:
        self.check_tiles()
        assert isinstance(self.x.type, TensorType) and isinstance(self.output.type, TensorType)
        rows, columns = self.matrix.data, {len(row) for row in self.matrix.data}
        if len(columns) != 1 or min(columns) < self.size.value.data:
            raise VerifyException("the rows of the matrix are as long as tiles are wide")
        shape = (len(rows) ** 2, self.tile_count, self.x.type.get_shape()[-1])
        if self.output.type.get_shape() != shape:
            raise VerifyException(f"the result's shape must be {shape}")
        self.check_image(self.x.type, min(columns) - self.size.value.data + 1)


@irdl_op_definition
class WinogradOp(Tiled):
    """
    A 3x3 convolution, tile by tile: `y = epilogue(A^T [U o (B^T d B)] A, inputs...)`.

    `x` is `[n, y, x, c]` and is read at `y + r + offset[0]`, `x + s + offset[1]`, or it is what
    `tile.transform_tiles` made of that; the domain is that of the result, `[n, y, x, k]`. `u` is
    `[(size + 2)^2, c, k]`: G w G^T for every pair of channels; or panels of that, `[panel,
    (size + 2)^2, c, lane]`. `tiles` of them are transformed before their products with `u` are
    summed, in blocks of `schedule`'s `block` tiles.
    """

    name = "tile.winograd"
    x = operand_def(TensorType)
    u = operand_def(TensorType)
    epilogue_inputs = var_operand_def(base(TensorType))
    domain = prop_def(IntsAttr)
    offset = prop_def(IntsAttr)
    size = prop_def(IntegerAttr)
    tiles = prop_def(IntegerAttr)
    epilogue_maps = prop_def(ArrayAttr[AffineMapAttr])
    schedule = prop_def(ScheduleAttr)
    epilogue = region_def("single_block")
    output = result_def(TensorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), EndsAtSizes())
    assembly_format = (
        "$x `,` $u `:` type($x) `,` type($u) "
        "(`epilogue_inputs` `(` $epilogue_inputs^ `:` type($epilogue_inputs) `)`)? "
        "`domain` $domain `offset` $offset `size` $size `tiles` $tiles "
        "`epilogue_maps` $epilogue_maps `schedule` $schedule `epilogue` $epilogue attr-dict "
        "`->` type($output)"
    )

    def __init__(
        self,
        x: SSAValue,
        u: SSAValue,
        domain: Sequence[int],
        offset: Sequence[int],
        size: int,
        tiles: int,
        schedule: ScheduleAttr,
        epilogue: Region,
        result_type: TensorType[Attribute],
        epilogue_inputs: Sequence[SSAValue] = (),
        epilogue_maps: Sequence[AffineMap] = (),
    ) -> None:
        Operation.__init__(
            self,
            operands=[x, u, *epilogue_inputs],
            properties={
                "domain": IntsAttr.of(domain),
                "offset": IntsAttr.of(offset),
                "size": whole(size),
                "tiles": whole(tiles),
                "epilogue_maps": maps_attribute(epilogue_maps),
                "schedule": schedule,
                **operand_segment_sizes(1, 1, len(epilogue_inputs)),
            },
            regions=[epilogue],
            result_types=[result_type],
        )

    @property
    def is_transformed(self) -> bool:
        """Whether the tiles come transformed."""
        return len(self.x.type.get_shape()) == 3  # type: ignore[attr-defined]

    @property
    def is_in_panels(self) -> bool:
        """Whether the weights come in panels."""
        return len(self.u.type.get_shape()) == 4  # type: ignore[attr-defined]

    def verify_(self) -> None:
        self.check_tiles()
        assert isinstance(self.x.type, TensorType) and isinstance(self.u.type, TensorType)
        taps, x, u = self.transforms.side**2, self.x.type.get_shape(), self.u.type.get_shape()
        first = (taps, self.tile_count) if self.is_transformed else self.sizes[:1]
        expected: tuple[int, ...] = (taps, x[-1], self.sizes[3])
        if self.is_in_panels:
            lanes = self.schedule.nr
            expected = (-(-self.sizes[3] // lanes), taps, x[-1], lanes)
        if x[: len(first)] != first or u != expected:
            raise VerifyException(f"weights of {u} do not fit {x} and {self.sizes}")
        if not self.is_transformed:
            self.check_image(self.x.type, TAPS)
        self.check_maps(self.epilogue_inputs, self.epilogue_input_maps, self.sizes)
        self.check_results()
        if element(self.x) != element(self.u):
            raise VerifyException("both factors have one element type")
        check_block(
            "epilogue", self.epilogue.block, [element(self.x), *map(element, self.epilogue_inputs)]
        )
