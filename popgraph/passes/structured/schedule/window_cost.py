"""The cost of a sliding window whose vectors of the image stay in registers between steps."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.dialects.tile.affine import Linear
from popgraph.support.machine import Machine


@dataclass(frozen=True)
class Window:
    """
    A window of `steps` terms that moves by `stride` terms from row to row of an image.

    Both operands are vectorized, as in a depthwise convolution.
    """

    # Decision 0006: `window_panels` exists for depthwise convolutions. They take two thirds of the
    # time if neighbouring steps share registers (98f7afa4).

    steps: int
    stride: int

    @staticmethod
    def along(image: Linear, inner: int, steps: int, rows: int) -> Window | None:
        """The window that loop `inner` slides along `rows`, if neighbouring rows share elements."""
        step, far = image.stride(inner), image.stride(rows)
        if not step or not far or far % step or not step <= far < step * steps:
            return None
        return Window(steps, far // step)

    def vectors(self, rows: int) -> int:
        """Vectors of the image that the windows of some rows cover."""
        return (rows - 1) * self.stride + self.steps

    def kept(self, rows: int) -> int:
        """Registers for vectors that a later step reads again."""
        # With stride 2, a 3-tap window has phases of 2 and 1 steps: the second is read only once.
        phases = [len(range(first, self.steps, self.stride)) for first in range(self.stride)]
        return sum(rows + phase - 1 for phase in phases if phase > 1)

    def cycles(self, rows: int, machine: Machine) -> float:
        """
        Cycles of all steps of the window for some rows: the largest of three bounds, plus 0.5.

        Issue: rows * steps / fmas_per_cycle. Loads: vectors / 2, each loaded once. Latency:
        fma_latency * steps, as each sum waits for its last product.
        """
        loads = self.vectors(rows) + self.steps
        issued = rows * self.steps / machine.fmas_per_cycle
        return max(issued, loads / 2, machine.fma_latency * self.steps) + 0.5

    def most_rows(self, registers: int) -> int:
        """Rows whose sums and kept vectors fit in registers, with two left for operands."""
        fitting = [rows for rows in range(1, registers) if rows + self.kept(rows) + 2 <= registers]
        return max(fitting, default=1)
