"""PopART's `NumericsReport`: the divergence of two trainings with the same initial weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from popgraph.builder.opset.arguments import typed
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.sessions.export import weights_of
from popgraph.support.arrays import Array

TINY = 1e-8
"""The epsilon that PopART adds to divisors."""


@dataclass(frozen=True)
class _Deviation:
    """The norms of two updates, and of their difference."""

    first: float
    second: float
    difference: float

    @classmethod
    def of(cls, starts: tuple[Array, Array], ends: tuple[Array, Array]) -> _Deviation:
        first, second = (
            end.astype(np.float64) - start.astype(np.float64)
            for start, end in zip(starts, ends, strict=True)
        )
        return cls(*(float(np.linalg.norm(one)) for one in (first, second, first - second)))

    @property
    def relative(self) -> float:
        return self.difference**2 / (self.first * self.second + TINY)

    def __str__(self) -> str:
        return (
            f"|dA - dB|^2 / (|dA||dB| + 1e-8)  = {self.relative:.16g}"
            f"  and  |dA||dB| = {self.first * self.second:.16g}"
            f"  and  |dA| = {self.first:.16g}  and  |dB| = {self.second:.16g}"
        )


@typed
class NumericsReport:
    """
    Compares the weights of four models: `NumericsReport(A0, A1, B0, B1)`.

    One training updates A0 to A1, another B0 to B1. Integer weights are ignored. Sums accumulate in
    double precision.
    """

    def __init__(self, A0: str | Path, A1: str | Path, B0: str | Path, B1: str | Path) -> None:
        a0, a1, b0, b1 = models = [weights_of(str(one)) for one in (A0, A1, B0, B1)]
        for other in models[1:]:
            _check_alike(a0, other)
        self._apart = {
            name: _Deviation.of((a0[name], b0[name]), (a1[name], b1[name]))
            for name, value in a0.items()
            if value.dtype.kind not in "iub"
        }

    def report(self, id: str) -> str:
        if id not in self._apart:
            raise popart_exception(
                f"No report available for {id}",
                "NumericsReport",
                f"there are {', '.join(self._apart) or 'none'}",
            )
        return str(self._apart[id])

    def fullReport(self) -> str:
        return "".join(f"\n{name} : \n{self._apart[name]}" for name in sorted(self._apart))

    def getRelativeErrors(self) -> dict[str, float]:
        return {name: self._apart[name].relative for name in sorted(self._apart)}


def _check_alike(one: dict[str, Array], other: dict[str, Array]) -> None:
    if len(one) != len(other):
        raise popart_exception("GraphProtos have different number of initializers")
    if list(one) != list(other):
        raise popart_exception("Tensor names do not correspond between TensorProtos")
    for name, value in one.items():
        if (value.shape, value.dtype) != (other[name].shape, other[name].dtype):
            raise popart_exception("TensorProto infos differ", f"weight {name!r}")
