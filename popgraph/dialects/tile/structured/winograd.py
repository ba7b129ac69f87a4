"""Transforms of image tiles: the steps of Winograd convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Block, Data, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import (
    AttrSizedOperandSegments,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
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
from popgraph.dialects.tile.running import EndsAtSizes, Extent
from popgraph.dialects.tile.structured.ops import Structured, check_block, element, maps_attribute
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape, prod

Matrix = tuple[tuple[float, ...], ...]

WINDOWS = (2, 3)
"""Heights and widths of the windows that have transforms."""


@dataclass(frozen=True)
class Transforms:
    """
    The matrices of F(m, r): `y = A^T [(G g) * (B^T d)]`, in two dimensions from both sides.

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
    def taps(self) -> int:
        """The number of elements of a transformed tile."""
        return self.side**2

    @property
    def gradient(self) -> Matrix:
        """A, which transforms tiles of the convolution's gradient."""
        return tuple(zip(*self.output, strict=True))


@cache
def transforms(size: int, window: int) -> Transforms:
    """
    The matrices for output tiles of `size` x `size` and a square window.

    Size 4 uses the points 0, +-1/sqrt(2), +-sqrt(2) and infinity for 3x3 windows, and +-1/2, +-5/4
    and infinity for 2x2 windows: they round less than integer points.
    """
    return (_transforms_2x2 if window == 2 else _transforms_3x3)(size)


def _transforms_2x2(size: int) -> Transforms:
    if size == 2:
        return Transforms(
            ((1, -1, 0), (0, 1, 0), (0, -1, 1)),
            ((1, 0), (1, 1), (0, 1)),
            ((1, 1, 0), (0, 1, 1)),
        )
    a, b = 0.5, 1.25
    at_a, at_b = 1 / (2 * a * (b**2 - a**2)), 1 / (2 * b * (b**2 - a**2))
    return Transforms(
        (
            (a * b**2, b**2, -a, -1, 0),
            (a * b**2, -(b**2), -a, 1, 0),
            (-b * a**2, -(a**2), b, 1, 0),
            (-b * a**2, a**2, b, -1, 0),
            (a**2 * b**2, 0, -(a**2) - b**2, 0, 1),
        ),
        ((at_a, a * at_a), (at_a, -a * at_a), (at_b, b * at_b), (at_b, -b * at_b), (0, 1)),
        (
            (1, 1, 1, 1, 0),
            (a, -a, b, -b, 0),
            (a**2, a**2, b**2, b**2, 0),
            (a**3, -(a**3), b**3, -(b**3), 1),
        ),
    )


def _transforms_3x3(size: int) -> Transforms:
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
class TransformTilesOp(Structured):
    """
    Transforms tiles by a matrix from both sides: `M tile M^T`, out of images or into images.

    `images` is the shape `[n, y, x]` of images that are divided into tiles of `size` x `size`,
    numbered as in `Tiling`. The loops are tiles, channels, and the elements of a source tile.

    Out of images: `x` is `[n, y, x, c]`, and the result is `[row * rows + column, tile, c]`. The
    source tile of the elements from (y, x) on begins at `(y, x) + offset`; its height and width are
    the matrix's number of columns. Tiles larger than `size` share elements. Where a last tile of
    `size` overlaps its predecessor, shared elements count in the first of both and are 0 in the
    other.

    Into images: `x` is `[row * columns + column, tile, c]`, there is no `offset`, and the result is
    `epilogue(M tile M^T, inputs...)`, `[n, y, x, c]`. Where a last tile overlaps its predecessor,
    the elements are those of the predecessor.
    """

    name = "tile.transform_tiles"
    x = operand_def(TensorType)
    epilogue_inputs = var_operand_def(base(TensorType))
    images = prop_def(IntsAttr)
    offset = opt_prop_def(IntsAttr)
    size = prop_def(IntegerAttr)
    matrix = prop_def(MatrixAttr)
    epilogue_maps = opt_prop_def(ArrayAttr[AffineMapAttr])
    epilogue = opt_region_def("single_block")
    output = result_def(TensorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), EndsAtSizes())
    assembly_format = (
        "$x `:` type($x) "
        "(`epilogue_inputs` `(` $epilogue_inputs^ `:` type($epilogue_inputs) `)`)? "
        "`images` $images (`offset` $offset^)? `size` $size `matrix` $matrix "
        "(`epilogue_maps` $epilogue_maps^ `epilogue` $epilogue)? attr-dict `->` type($output)"
    )

    def __init__(
        self,
        x: SSAValue,
        images: Sequence[int],
        offset: Sequence[int] | None,
        size: int,
        matrix: Matrix,
        result_type: TensorType[Attribute],
        epilogue: Region | None = None,
        epilogue_inputs: Sequence[SSAValue] = (),
        epilogue_maps: Sequence[AffineMap] = (),
    ) -> None:
        properties: dict[str, Attribute] = {
            "images": IntsAttr.of(images),
            "size": whole(size),
            "matrix": MatrixAttr.of(matrix),
            **operand_segment_sizes(1, len(epilogue_inputs)),
        }
        if offset is not None:
            properties["offset"] = IntsAttr.of(offset)
        if epilogue is not None:
            properties["epilogue_maps"] = maps_attribute(epilogue_maps)
        Operation.__init__(
            self,
            operands=[x, *epilogue_inputs],
            properties=properties,
            regions=[] if epilogue is None else [epilogue],
            result_types=[result_type],
        )

    @property
    def tiling(self) -> Tiling:
        return Tiling.of(self.images.data, self.size.value.data)

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self.x.type.get_shape()[-1]  # type: ignore[attr-defined,no-any-return]

    @property
    def sizes(self) -> Shape:
        """The extents of the loops: tiles, channels, and the elements of a source tile."""
        return self.tiling.count, self.channels, self.side**2

    @property
    def parallel_rank(self) -> int:
        return 2

    @property
    def side(self) -> int:
        """Height and width of a source tile."""
        return len(self.matrix.data[0])

    @property
    def is_into_images(self) -> bool:
        """Whether the source holds tiles, and the result is images."""
        return self.epilogue is not None

    @property
    def shares_elements(self) -> bool:
        """Whether tiles overlap by design, so that elements count in each of their tiles."""
        return self.side > self.size.value.data

    @property
    def window(self) -> AffineMap:
        """(image, y, x of a tile's corner; row, column, channel in the tile) -> index of `x`."""
        n, y, x, row, column, channel = (AffineExpr.dimension(dim) for dim in range(6))
        down, right = self.offset  # type: ignore[misc]
        return AffineMap(6, 0, (n, y + row + down, x + column + right, channel))

    @property
    def source_map(self) -> AffineMap | None:
        """The map from the loops to an index of the tiles in `x`; None if `x` is images."""
        tile, channel, at = (AffineExpr.dimension(dim) for dim in range(3))
        return AffineMap(3, 0, (at, tile, channel)) if self.is_into_images else None

    @property
    def epilogue_input_maps(self) -> tuple[AffineMap, ...]:
        """The maps of epilogue inputs, over image, row, column and channel of the result."""
        return tuple(attribute.data for attribute in self.epilogue_maps or ())

    def axis_of(self, loop: int) -> int | None:
        """The axis of the result that a parallel loop counts; None for tiles of images."""
        return (None, 3)[loop] if self.is_into_images else (1, 2)[loop]

    def result_ends(self, ends: Mapping[int, Extent]) -> dict[int, Extent]:
        """The axes of the result that end at sizes, for loops that do."""
        if 0 not in ends:
            return {}
        if not self.is_into_images:
            return {1: ends[0]}
        images = ends[0].divided(prod(self.tiling.grid))
        assert images is not None, "sizes end after whole images"
        return {0: images}

    def verify_(self) -> None:
        size, images = self.size.value.data, self.images.data
        assert isinstance(self.x.type, TensorType) and isinstance(self.output.type, TensorType)
        if size not in (2, 4) or len(images) != 3:
            raise VerifyException("tiles must be 2x2 or 4x4, of images [n, y, x]")
        if min(images[1:]) < size:
            raise VerifyException(f"a tile of {size}x{size} is larger than the image")
        if len({len(row) for row in self.matrix.data}) != 1:
            raise VerifyException("the rows of the matrix must have equal lengths")
        if (self.offset is None) != self.is_into_images:
            raise VerifyException("an offset is for tiles of images, an epilogue for images")
        if self.epilogue is None:
            self._check_out_of_images()
        else:
            self._check_into_images(self.epilogue.block)

    def _check_out_of_images(self) -> None:
        x, images, columns = self.x.type, self.images.data, self.side
        assert isinstance(x, TensorType) and isinstance(self.output.type, TensorType)
        if columns < self.size.value.data or len(self.offset or ()) != 2:
            raise VerifyException(
                "source tiles have an offset for row and column, and at least the tile size"
            )
        shape = (len(self.matrix.data) ** 2, self.tiling.count, x.get_shape()[-1])
        if self.output.type.get_shape() != shape or self.epilogue_inputs:
            raise VerifyException(f"the result must have shape {shape}, without an epilogue")
        window = columns - self.size.value.data + 1
        if leaves(x, self.window, (*images, window, window, shape[-1])):
            raise VerifyException(f"windows leave {x} over {list(images)}")

    def _check_into_images(self, epilogue: Block) -> None:
        shape = (*self.images.data, self.channels)
        assert isinstance(self.x.type, TensorType) and isinstance(self.output.type, TensorType)
        if self.x.type.get_shape() != (self.side**2, *self.sizes[:2]):
            raise VerifyException(f"the tiles must have shape {(self.side**2, *self.sizes[:2])}")
        if len(self.matrix.data) != self.size.value.data:
            raise VerifyException("the matrix must have a row for each row of a tile")
        if self.output.type.get_shape() != shape:
            raise VerifyException(f"the result must have shape {shape}")
        self.check_maps(self.epilogue_inputs, self.epilogue_input_maps, shape)
        expected = [element(self.x), *map(element, self.epilogue_inputs)]
        check_block("epilogue", epilogue, expected)
