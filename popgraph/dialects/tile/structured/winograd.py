"""Winograd convolutions and tile transforms as structured operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
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
from popgraph.dialects.tile.attributes import ScheduleAttr, physical_shape
from popgraph.dialects.tile.running import EndsAtSizes
from popgraph.dialects.tile.structured.ops import Structured, check_block, element, maps_attribute
from popgraph.support.shapes import Shape, prod

Matrix = tuple[tuple[float, ...], ...]

TAPS = 3
"""Height and width of the convolution's window."""


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
        """Height and width of an input tile."""
        return len(self.input)

    @property
    def gradient(self) -> Matrix:
        """A, which transforms tiles of the convolution's gradient."""
        return tuple(zip(*self.output, strict=True))


@cache
def transforms(size: int) -> Transforms:
    """
    The matrices for output tiles of `size` x `size`.

    Size 4 uses the points 0, +-1/sqrt(2), +-sqrt(2) and infinity: they round less than integer
    points.
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


@dataclass(frozen=True)
class Tiling:
    """
    Images divided into tiles of `size` x `size` results, numbered row by row, image by image.

    A tile begins at `min(step * size, last)` along both axes: the last one of a row or column
    overlaps its predecessor instead of crossing the border.
    """

    images: int
    extents: tuple[int, int]
    size: int

    @staticmethod
    def of(images: Shape, size: int) -> Tiling:
        """The tiling of images of shape (count, height, width)."""
        count, height, width = images
        return Tiling(count, (height, width), size)

    @property
    def grid(self) -> tuple[int, int]:
        """The numbers of tiles along height and width."""
        height, width = self.extents
        return -(-height // self.size), -(-width // self.size)

    @property
    def count(self) -> int:
        return self.images * prod(self.grid)

    @property
    def taps(self) -> int:
        """The number of elements of a transformed tile."""
        return self.transforms.side**2

    @property
    def transforms(self) -> Transforms:
        return transforms(self.size)

    @property
    def last(self) -> tuple[int, int]:
        """The first row and the first column of a tile at the lower right border."""
        height, width = self.extents
        return height - self.size, width - self.size

    @property
    def overlaps(self) -> tuple[int, int]:
        """The rows and columns that the last tile shares with its predecessor."""
        height, width = self.extents
        return -height % self.size, -width % self.size

    @cached_property
    def steps(self) -> AffineMap:
        """(tile number) -> (image, tile row, tile column)."""
        columns, each = self.grid[1], prod(self.grid)
        number = AffineExpr.dimension(0)
        return AffineMap(1, 0, (number // each, number % each // columns, number % each % columns))


class Tiled(Structured):
    """An operation on image tiles; the first dimensions of its domain are image, row and column."""

    @property
    def parallel_rank(self) -> int:
        return len(self.sizes)

    @property
    def tiling(self) -> Tiling:
        return Tiling.of(self.sizes[:3], self.size.value.data)  # type: ignore[attr-defined]

    @property
    def window(self) -> AffineMap:
        """(image, y, x of a tile's corner; row, column, channel in the tile) -> index of `x`."""
        n, y, x, row, column, channel = (AffineExpr.dimension(dim) for dim in range(6))
        down, right = self.offset.data  # type: ignore[attr-defined]
        return AffineMap(6, 0, (n, y + row + down, x + column + right, channel))

    def check_tiles(self) -> None:
        size = self.size.value.data  # type: ignore[attr-defined]
        if size not in (2, 4) or len(self.offset) != 2:  # type: ignore[attr-defined]
            raise VerifyException("tiles must be 2x2 or 4x4, with an offset for row and column")
        if min(self.sizes[1:3]) < size:
            raise VerifyException(f"a tile of {size}x{size} is larger than the image")

    def check_image(self, image: TensorType[Attribute], window: int) -> None:
        """Checks that windows stay within the image and its halo."""
        sizes = (*self.sizes[:3], window, window, image.get_shape()[-1])
        if leaves(image, self.window, sizes):
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
    Transforms tiles of `x`, of shape `[n, y, x, c]`, by a matrix from both sides: `M tile M^T`.

    The domain is `[n, y, x]` of a convolution's result, with one tile for each `size` x `size` of
    its elements. The tile of the results from (y, x) on begins at `(y, x) + offset`; its height and
    width are the matrix's number of columns. The result is `[row * rows + column, tile, c]`.

    Tiles larger than `size` share elements. Where a last tile of `size` overlaps its predecessor,
    shared elements count in the first of both and are 0 in the other.
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
        """Whether tiles overlap by design, so that elements count in each of their tiles."""
        return len(self.matrix.data[0]) > self.size.value.data

    def verify_(self) -> None:
        self.check_tiles()
        assert isinstance(self.x.type, TensorType) and isinstance(self.output.type, TensorType)
        rows, columns = self.matrix.data, {len(row) for row in self.matrix.data}
        if len(columns) != 1 or min(columns) < self.size.value.data:
            raise VerifyException(
                "the rows of the matrix must have equal lengths of at least the tile size"
            )
        shape = (len(rows) ** 2, self.tiling.count, self.x.type.get_shape()[-1])
        if self.output.type.get_shape() != shape:
            raise VerifyException(f"the result must have shape {shape}")
        self.check_image(self.x.type, min(columns) - self.size.value.data + 1)


@irdl_op_definition
class WinogradOp(Tiled):
    """
    A 3x3 convolution by Winograd's algorithm: `y = epilogue(A^T [U o (B^T d B)] A, inputs...)`.

    `x` is `[n, y, x, c]` and is read at `y + r + offset[0]`, `x + s + offset[1]`, or it holds the
    tiles that `tile.transform_tiles` made of it. The domain is the result's, `[n, y, x, k]`. `u` is
    G w G^T for each pair of channels, in memory `[panel, tap, c, lane]` with the lanes of k in a
    panel of the `schedule`. `tiles` tiles are transformed at a time and then multiplied with `u`:
    a contraction `[tap, tile, k]` over c, blocked by the schedule.
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
        """Whether `x` holds transformed tiles."""
        return len(self.x.type.get_shape()) == 3  # type: ignore[attr-defined]

    @property
    def panels(self) -> int:
        """The number of panels of weights; lanes of the last one may be unused."""
        return -(-self.sizes[3] // self.schedule.nr)

    def verify_(self) -> None:
        self.check_tiles()
        assert isinstance(self.x.type, TensorType) and isinstance(self.u.type, TensorType)
        tiling, x, u = self.tiling, self.x.type.get_shape(), physical_shape(self.u.type)
        taps = tiling.taps
        first = (taps, tiling.count) if self.is_transformed else self.sizes[:1]
        if x[: len(first)] != first or u != (self.panels, taps, x[-1], self.schedule.nr):
            raise VerifyException(f"weights of {u} do not fit {x} and {self.sizes}")
        if not self.is_transformed:
            self.check_image(self.x.type, TAPS)
        self.check_maps(self.epilogue_inputs, self.epilogue_input_maps, self.sizes)
        self.check_results()
        if element(self.x) != element(self.u):
            raise VerifyException("x and u must have the same element type")
        check_block(
            "epilogue", self.epilogue.block, [element(self.x), *map(element, self.epilogue_inputs)]
        )
