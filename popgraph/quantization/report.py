"""The report of a quantization: errors per layer, bytes and times, as text and for rich."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from popgraph.support.amounts import bytes_text, counted
from popgraph.support.arrays import Array
from popgraph.support.tables import table


@dataclass
class Difference:
    """The difference between two tensors, summed over all batches."""

    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0

    def add(self, plain: Array, rounded: Array) -> None:
        """Adds the elements of a batch."""
        if not plain.size:
            return
        wide = plain.astype(np.float64)
        error = rounded.astype(np.float64) - wide
        self.signal += float((wide**2).sum())
        self.noise += float((error**2).sum())
        self.largest = max(self.largest, float(np.abs(error).max()))

    @property
    def sqnr(self) -> float:
        """The signal to quantization noise ratio in dB; infinite without noise."""
        if not self.noise:
            return float("inf")
        return 10 * float(np.log10(self.signal / self.noise)) if self.signal else -float("inf")

    @staticmethod
    def of(plain: Array, rounded: Array) -> Difference:
        made = Difference()
        made.add(plain, rounded)
        return made


@dataclass(frozen=True)
class Layer:
    """A quantized layer, and the errors of rounding."""

    name: str
    operator: str
    weight: str
    """The type of the weight, such as i8; empty if both operands are computed."""
    weight_sqnr: float | None
    """Signal to noise of the weight alone, in dB."""
    sqnr: float | None = None
    """
    Signal to noise of the result, in dB, with the errors of all layers before; None without data.
    """
    max_error: float | None = None
    """The largest absolute error of the result."""


@dataclass
class Report:
    """The errors per layer, and the bytes and times before and after."""

    mode: str
    layers: list[Layer] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """The layers that stay in floats, by name."""
    outputs: dict[str, Difference] = field(default_factory=dict)
    """The difference of each output of the model; empty without data."""
    batches: int = 0
    """The number of batches of calibration data."""
    weight_bytes: tuple[int, int] = (0, 0)
    """Bytes of the quantized weights, before and after."""
    model_bytes: tuple[int, int] = (0, 0)
    """Bytes of the whole model, before and after."""
    seconds: tuple[float, float] | None = None
    """Seconds of a run in floats and quantized, if measured."""

    def worst(self, count: int = 5) -> list[Layer]:
        """The layers with the largest errors: candidates for `nodes_to_exclude`."""

        def quality(layer: Layer) -> float:
            found = layer.weight_sqnr if layer.sqnr is None else layer.sqnr
            return float("inf") if found is None else found

        return sorted(self.layers, key=quality)[:count]

    def layer_rows(self) -> list[tuple[str, ...]]:
        """A row of text per layer, after a row of titles."""
        titles = ("layer", "operator", "weight", "weight SQNR", "result SQNR", "max error")
        rows = [
            (
                layer.name,
                layer.operator,
                layer.weight or "-",
                _decibels(layer.weight_sqnr),
                _decibels(layer.sqnr),
                "-" if layer.max_error is None else f"{layer.max_error:.3g}",
            )
            for layer in self.layers
        ]
        return [titles, *rows]

    def gain_rows(self) -> list[tuple[str, ...]]:
        """The table of gains: quantity, before, after, ratio."""
        rows: list[tuple[str, ...]] = [("", "float", "quantized", "ratio")]
        for name, pair in (("quantized weights", self.weight_bytes), ("model", self.model_bytes)):
            rows.append((name, *map(bytes_text, pair), _ratio(*pair)))
        if self.seconds is not None:
            times = (f"{one * 1e3:.3g} ms" for one in self.seconds)
            rows.append(("time of a run", *times, _ratio(*self.seconds)))
        return rows

    def notes(self) -> list[str]:
        """Sentences after the tables."""
        found = [f"{counted(len(self.layers), 'layer')} quantized ({self.mode})"]
        if self.skipped:
            shown = ", ".join(self.skipped[:8]) + ", ..." * (len(self.skipped) > 8)
            found.append(f"{counted(len(self.skipped), 'layer')} in floats: {shown}")
        found += [
            f"output {name}: {_decibels(one.sqnr)}, max error {one.largest:.3g}"
            for name, one in self.outputs.items()
        ]
        return found

    def __str__(self) -> str:
        return "\n\n".join(
            [table(self.layer_rows()), table(self.gain_rows()), "\n".join(self.notes())]
        )

    def __rich__(self) -> Group:
        return Group(_rich(self.layer_rows()), _rich(self.gain_rows()), *map(Text, self.notes()))


def _ratio(before: float, after: float) -> str:
    return f"{before / after:.2f}x" if after else "-"


def _rich(rows: Sequence[Sequence[str]]) -> Table:
    titles, *others = rows
    made = Table()
    for title in titles:
        made.add_column(title, justify="left" if title in ("layer", "operator", "") else "right")
    for row in others:
        made.add_row(*map(Text, row))  # Not markup: names may contain brackets.
    return made


def _decibels(value: float | None) -> str:
    if value is None:
        return "-"
    return "exact" if value == float("inf") else f"{value:.1f} dB"
