"""PopART's `TensorInfo`: element type and shape of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.element_types import dtype_row, named_row
from popgraph.builder.opset.enums import DataType
from popgraph.popart.exceptions import as_popart_errors, popart_exception
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape, prod


@typed
class TensorInfo:
    """
    Element type and shape: `TensorInfo("FLOAT", [2, 3])`, `TensorInfo(np.float32, [2, 3])`,
    `TensorInfo(array)`, `TensorInfo("FLOAT", "(2,3)")`.

    A dimension may be -1 or a name if the session's `InputShapeInfo` provides the number.
    """

    def __init__(self, *args: object) -> None:
        self._row: DType
        self._shape: tuple[int | str, ...]
        match args:
            case (np.ndarray() as array,):
                self._row, self._shape = _row(array.dtype, args), array.shape
            case (TensorInfo() as other,):
                self._row, self._shape = other._row, other._shape
            case (kind, str() as text):
                self._row, self._shape = _row(kind, args), _of_text(text)
            case (kind, shape) if isinstance(shape, Sequence | np.ndarray):
                self._row = _row(kind, args)
                self._shape = tuple(dim if isinstance(dim, str) else int(dim) for dim in shape)
            case _:
                raise TypeError(f"Can not create TensorInfo with args {args}")

    def shape(self) -> list[int]:
        return list(self._shape)  # type: ignore[arg-type]

    def metaShape(self) -> list[int]:
        """The unsharded shape; nothing is sharded here."""
        return []

    def rank(self) -> int:
        return len(self._shape)

    def dim(self, i: int) -> int:
        return self.shape()[i]

    def nelms(self) -> int:
        return prod(self.shape())

    def nbytes(self) -> int:
        return self.nelms() * self._row.numpy.itemsize

    def strides(self, shape: Sequence[int] | None = None) -> list[int]:
        """Bytes from one element to the next along each axis."""
        step, result = self._row.numpy.itemsize, []
        for dim in reversed(self.shape() if shape is None else shape):
            result.append(step)
            step *= dim
        return result[::-1]

    def dataType(self) -> DataType:
        return DataType[self._row.popart]

    def data_type(self) -> str:
        return self._row.popart

    def data_type_lcase(self) -> str:
        """The name of the NumPy dtype."""
        return str(self._row.numpy)

    def set(
        self,
        dataType: DataType,
        shape: Sequence[int] | None = None,
        metaShape: Sequence[int] | None = None,
    ) -> None:
        self._row = dtype_row(dataType.name)
        if shape is not None:
            self._shape = tuple(shape)

    @property
    def row(self) -> DType:
        """The element type as PopGraph's DType."""
        return self._row

    @property
    def static(self) -> Shape:
        """The static shape."""
        return tuple(self.shape())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorInfo):
            return NotImplemented
        return (self._row, self._shape) == (other._row, other._shape)

    def __hash__(self) -> int:
        return hash((self._row.name, self._shape))

    def __str__(self) -> str:
        return f"{self._row.popart}   [{' '.join(map(str, self._shape))}]"

    def __repr__(self) -> str:
        return f"TensorInfo({self._row.popart!r}, {list(self._shape)})"


def _row(dtype: object, args: tuple[object, ...]) -> DType:
    try:
        with as_popart_errors():
            return named_row(dtype)
    except (KeyError, TypeError):
        raise TypeError(f"Can not create TensorInfo with args {args}") from None


def _of_text(text: str) -> tuple[int, ...]:
    """Parses a shape in PopART's form: `(2,3)`."""
    if text[:1] != "(" or text[1:][-1:] != ")":
        raise popart_exception("invalid string for shape", repr(text), "write (2,3)")
    if " " in text:
        raise popart_exception("s contains a space : not valid shape string", repr(text))
    try:
        return tuple(map(int, text[1:-1].removesuffix(",").split(","))) if text != "()" else ()
    except ValueError:
        raise popart_exception("invalid string for shape", repr(text), "write (2,3)") from None


@typed
def getTensorInfo(array: NDArray[np.generic]) -> TensorInfo:
    return TensorInfo(array)
