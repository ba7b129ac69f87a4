"""The cost of a sliding window: vectors of an image that stay in registers between steps."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.dialects.tile.affine import Linear
from popgraph.support.machine import Machine


@dataclass(frozen=True)
class Window:
    """
    A reduction of `steps` that slides along rows when both factors run along vectors.

    From one row to the next it moves by `stride` of its steps.
    """

    steps: int
    stride: int

    @staticmethod
    def along(image: Linear, inner: int, steps: int, rows: int) -> Window | None:
        """What loop `inner` slides along `rows` of the image, if its steps share elements."""
        step, far = image.stride(inner), image.stride(rows)
        if not step or not far or far % step or not step <= far < step * steps:
            return None
        return Window(steps, far // step)

    def vectors(self, rows: int) -> int:
        """How many vectors of the image it covers."""
        return (rows - 1) * self.stride + self.steps

    def kept(self, rows: int) -> int:
        """How many of these are kept for a later step."""
        phases = [len(range(first, self.steps, self.stride)) for first in range(self.stride)]
        return sum(rows + phase - 1 for phase in phases if phase > 1)

    def cycles(self, rows: int, machine: Machine) -> float:
        """
        Cycles of all steps of the window for some rows, the largest of three, and a half.

        rows * steps / fmas_per_cycle: multiply-adds that begin; loads / 2: two vectors a cycle,
        each once; fma_latency * steps: a sum is ready for its next product.
        """
        loads = self.vectors(rows) + self.steps
        issued = rows * self.steps / machine.fmas_per_cycle
        return max(issued, loads / 2, machine.fma_latency * self.steps) + 0.5

    def most_rows(self, registers: int) -> int:
        """For how many rows registers hold the sums and what is kept, beside two for the rest."""
        fitting = [rows for rows in range(1, registers) if rows + self.kept(rows) + 2 <= registers]
        return max(fitting, default=1)
