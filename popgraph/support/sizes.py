"""Sizes set by a call: symbolic dimensions of a program, with an upper bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class SizedAxis:
    """An axis of an input or output whose extent is `factor` times a size."""

    tensor: str
    axis: int
    factor: int = 1


@dataclass(frozen=True)
class Size:
    """A size in [least, bound] that a call sets; the program has an input of this name."""

    name: str
    bound: int
    inputs: tuple[SizedAxis, ...]
    outputs: tuple[SizedAxis, ...] = ()
    least: int = 1

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Size:
        """The size of a row that `asdict` created."""
        axes = {
            part: tuple(SizedAxis(**one) for one in row[part]) for part in ("inputs", "outputs")
        }
        return Size(row["name"], row["bound"], **axes, least=row["least"])

    def __str__(self) -> str:
        return f"{self.name} {self.least}..{self.bound}"


def symbolic_shape(
    tensor: str, shape: Sequence[int], sizes: Iterable[Size]
) -> tuple[int | str, ...]:
    """The shape of an input with names in place of sizes: `(N, 8)`."""
    found: list[int | str] = [*shape]
    for size in sizes:
        for sized in size.inputs:
            if sized.tensor == tensor:
                times = "" if sized.factor == 1 else f"{sized.factor}*"
                found[sized.axis] = f"{times}{size.name}"
    return tuple(found)


def with_sizes(
    shapes: Mapping[str, Shape], sizes: Sequence[Size], numbers: Mapping[str, int]
) -> dict[str, Shape]:
    """The shapes of inputs for these values of the sizes."""
    found = {name: list(shape) for name, shape in shapes.items()}
    for size in sizes:
        for sized in size.inputs:
            found[sized.tensor][sized.axis] = numbers[size.name] * sized.factor
    return {name: tuple(shape) for name, shape in found.items()}


def sizes_in(sizes: Sequence[Size], shapes: Mapping[str, Shape]) -> dict[str, int] | None:
    """The sizes of inputs with these shapes; None if they are inconsistent."""
    found = dict[str, int]()
    for size in sizes:
        for sized in size.inputs:
            number, rest = divmod(shapes[sized.tensor][sized.axis], sized.factor)
            known = found.setdefault(size.name, number)
            if rest or not size.least <= number <= size.bound or number != known:
                return None
    return found


def leading_slices(
    arrays: Mapping[str, Array], axes: Iterable[SizedAxis], number: int
) -> dict[str, Array]:
    """The leading slices of arrays for this value of a size."""
    found = dict(arrays)
    for sized in axes:
        end = slice(0, number * sized.factor)
        found[sized.tensor] = found[sized.tensor][(slice(None),) * sized.axis + (end,)]
    return found
