"""What do the steps of a reduction have in common, where it slides along a row of vectors?"""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.dialects.tile.affine import Linear


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
        turns = [len(range(first, self.steps, self.stride)) for first in range(self.stride)]
        return sum(rows + turn - 1 for turn in turns if turn > 1)

    def cycles(self, rows: int) -> float:
        """Two products, two loads a cycle; a sum is ready for the next after four cycles."""
        loads = self.vectors(rows) + self.steps
        return max(rows * self.steps / 2, loads / 2, 4.0 * self.steps) + 0.5

    def most_rows(self, registers: int) -> int:
        """For how many rows registers hold the sums and what is kept, beside two for the rest."""
        fitting = [rows for rows in range(1, registers) if rows + self.kept(rows) + 2 <= registers]
        return max(fitting, default=1)
