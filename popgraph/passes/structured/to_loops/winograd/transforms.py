"""Products of vectors with small constant matrices, with shared sums of row and column pairs."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FloatAttr, VectorType
from xdsl.ir import SSAValue

from popgraph.dialects.tile.structured.winograd import Matrix
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes, lanes_of
from popgraph.passes.structured.to_loops.emit.writer import Writer

Table = list[list[SSAValue]]
"""Values by row and column."""

Row = Sequence[float]


def transform_2d(writer: Writer, matrix: Matrix, values: Table) -> Table:
    """`matrix * values * matrix^T`."""
    columns = [product(writer, matrix, column) for column in zip(*values, strict=True)]
    return [product(writer, matrix, row) for row in zip(*columns, strict=True)]


def product(writer: Writer, matrix: Matrix, values: Sequence[SSAValue]) -> list[SSAValue]:
    """
    `matrix * values`.

    Columns that are equal up to signs share a sum and a difference of two values; rows that are
    equal up to signs share their even and odd parts.
    """
    # (x0, x1) with columns (a, a), (b, -b): s = x0 + x1, d = x0 - x1; y0 = a s, y1 = b d. Rows of
    # even part e and odd part o are e + o and e - o: half of the multiplications.
    return _Product(writer).of([list(row) for row in matrix], list(values))


class _Product:
    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def of(self, rows: list[list[float]], values: list[SSAValue]) -> list[SSAValue]:
        for at, other in _columns(rows):
            first, second = values[at], values[other]
            values[at] = self.writer.add(create_same_type(arith.AddfOp, first, second))
            values[other] = self.writer.add(create_same_type(arith.SubfOp, first, second))
            for row in rows:
                row[at], row[other] = (row[at], 0) if row[at] == row[other] else (0, row[at])
        found: dict[int, SSAValue] = {}
        for at, other in _rows(rows):
            pair = list(zip(rows[at], rows[other], strict=True))
            even = self._sum([one if one == two else 0 for one, two in pair], values)
            odd = self._sum([one if one != two else 0 for one, two in pair], values)
            found[at] = self.writer.add(create_same_type(arith.AddfOp, even, odd))
            found[other] = self.writer.add(create_same_type(arith.SubfOp, even, odd))
        return [found.get(at) or self._sum(row, values) for at, row in enumerate(rows)]

    def _sum(self, row: Row, values: Sequence[SSAValue]) -> SSAValue:
        """The sum of `factor * value`; terms with factor 1 come first, then those with -1."""
        # The total then begins without a multiplication, and each later product is added to it:
        # a multiply-add.
        terms = [(factor, value) for factor, value in zip(row, values, strict=True) if factor]
        terms.sort(key=lambda term: (term[0] != 1, abs(term[0]) != 1))
        (factor, value), *others = terms
        total = value if factor == 1 else self._multiple(factor, value)
        for factor, value in others:
            if factor == -1:
                total = self.writer.add(create_same_type(arith.SubfOp, total, value))
            else:
                term = value if factor == 1 else self._multiple(factor, value)
                total = self.writer.add(create_same_type(arith.AddfOp, total, term))
        return total

    def _multiple(self, factor: float, value: SSAValue) -> SSAValue:
        kind = value.type.element_type if isinstance(value.type, VectorType) else value.type
        assert isinstance(kind, AnyFloat)
        constant = self.writer.literal(FloatAttr(factor, kind))
        return self.writer.add(
            create_same_type(arith.MulfOp, value, in_lanes(self.writer, constant, lanes_of(value)))
        )


def _columns(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Adjacent columns that are equal up to signs, with some signs equal and some opposite."""
    count = len(rows[0]) - 1
    return [(at, at + 1) for at in range(count) if _agree([row[at : at + 2] for row in rows])]


def _rows(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Adjacent rows that are equal up to signs, with some signs equal and some opposite."""
    return [
        (at, at + 1)
        for at in range(len(rows) - 1)
        if _agree(list(zip(rows[at], rows[at + 1], strict=True)))
    ]


def _agree(pairs: Sequence[Sequence[float]]) -> bool:
    """Whether all pairs are equal or opposite, and both kinds occur."""
    used = [(one, two) for one, two in pairs if one or two]
    same = sum(one == two for one, two in used)
    return all(abs(one) == abs(two) for one, two in used) and 0 < same < len(used)
