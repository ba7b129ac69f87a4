"""The description of a model: its inputs, outputs and parameters, as text and for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from popgraph.support.amounts import bytes_text, counted
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape, prod

MAX_LISTED = 12
"""The maximum number of inputs, and of outputs, that are listed."""


@dataclass(frozen=True)
class TensorSpec:
    """The name, type and shape of an input, an output or a parameter."""

    name: str
    type: str
    """In the format of messages: `f32[N, 3]`, `sequence(f32[...])`."""
    dtype: np.dtype[Any] | None
    """The element type in NumPy; None for other types than numeric tensors."""
    shape: tuple[int | str | None, ...] | None
    """
    Integers, names of symbolic dimensions, or None for an unnamed unknown size; None as a whole if
    the rank is unknown.
    """

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    @staticmethod
    def of(name: str, dtype: DType, shape: Shape) -> TensorSpec:
        """The spec of an array."""
        sizes = ", ".join(map(str, shape))
        return TensorSpec(name, f"{dtype.name}[{sizes}]", dtype.numpy, tuple(shape))

    @property
    def row(self) -> tuple[Any, ...]:
        """The spec as text and numbers, for a file."""
        return self.name, self.type, "" if self.dtype is None else self.dtype.name, self.shape

    @staticmethod
    def from_row(row: Sequence[Any]) -> TensorSpec:
        """The spec stored by `row`."""
        name, type_, dtype, shape = row
        sizes = None if shape is None else tuple(shape)
        return TensorSpec(name, type_, np.dtype(dtype) if dtype else None, sizes)

    @property
    def size(self) -> int | None:
        """The number of elements, if known."""
        sizes = [one for one in self.shape or () if isinstance(one, int)]
        if self.shape is None or len(sizes) != len(self.shape):
            return None
        return prod(sizes)

    @property
    def nbytes(self) -> int | None:
        """The size in NumPy, if known."""
        if self.size is None or self.dtype is None:
            return None
        return self.size * self.dtype.itemsize


def specs(rows: Mapping[str, tuple[DType, Shape]]) -> dict[str, TensorSpec]:
    """Specs of arrays, by name."""
    return {name: TensorSpec.of(name, *row) for name, row in rows.items()}


@dataclass(frozen=True)
class Description:
    """The inputs, outputs and parameters of a model."""

    model: str = ""
    """Its file or its name."""
    inputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    parameters: Mapping[str, TensorSpec] = field(default_factory=dict)
    """The initializers: weights and other constant tensors."""

    @property
    def parameters_text(self) -> str:
        """`4 tensors, 131 numbers, 524 bytes`."""
        held = self.parameters.values()
        if not held:
            return "none"
        numbers = counted(sum(one.size or 0 for one in held), "number")
        size = bytes_text(sum(one.nbytes or 0 for one in held))
        return f"{counted(len(held), 'tensor')}, {numbers}, {size}"

    def rows(self) -> list[tuple[str, str]]:
        """(label, text) pairs for people."""
        return [
            *_listed("input", self.inputs.values()),
            *_listed("output", self.outputs.values()),
            ("parameters", self.parameters_text),
        ]


def _listed(word: str, of: Iterable[TensorSpec]) -> list[tuple[str, str]]:
    found = list(of)
    rows = [(word, str(one)) for one in found[:MAX_LISTED]]
    if len(found) > MAX_LISTED:
        rows.append((word, f"... and {len(found) - MAX_LISTED} more"))
    return rows or [(word, "none")]


def as_text(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """The rows under a title, for a terminal."""
    return "\n".join([f"<{title}>", *(f"  {word:10}  {text}" for word, text in rows)])


def as_html(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """The rows as a table, for a notebook."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(word)}</th>"
        f"<td style='text-align:left'><code>{escape(text)}</code></td></tr>"
        for word, text in rows
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"
