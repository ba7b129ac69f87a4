"""Tensor names of 2018: the numbers "1", "2", ..."""

from __future__ import annotations

from popgraph.popart.api.names import Names


class NumberedNames(Names):
    """Every new tensor of a model, in any of its graphs, has the next number for a name."""

    def new(self, stem: str, output: int | None = None) -> str:
        number = 1
        while self.is_taken(str(number)):
            number += 1
        self.take(str(number))
        return str(number)
