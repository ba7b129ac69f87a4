"""Decisions about contractions, made once per structure and kept across programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

from popgraph.dialects import tile
from popgraph.dialects.tile.loops.known import KnownKernels
from popgraph.passes.analysis.structural_hash import SpelledStructure, StructuralHasher
from popgraph.support.cache_files import digest
from popgraph.support.tuning import Target

Decided = TypeVar("Decided")

Fixed = tuple[bool, bool]
"""Whether each operand of a contraction is constant."""


class Decisions(Generic[Decided]):
    """Decides once for all contractions of one structure, whatever their operands."""

    # A network repeats its contractions: DenseNet-121 has 58 Winograd layers of a few structures.

    def __init__(self, decide: Callable[[tile.ReduceOp, Fixed], Decided]) -> None:
        self._decide = decide
        self._structures = StructuralHasher()
        self._made: dict[Hashable, Decided] = {}

    def of(self, op: tile.ReduceOp, fixed: Fixed) -> Decided:
        """The decision about a contraction."""
        key = self._structures.of(op), fixed
        if key not in self._made:
            self._made[key] = self._decide(op, fixed)
        return self._made[key]


class KnownDecisions(Decisions[Decided]):
    """
    Decisions that are kept in a cache across programs.

    `decide` depends only on the structure of a contraction, on `fixed`, on the target and on the
    code of PopGraph. `spell` writes a decision as text for `known`; `read` parses it, or raises
    ValueError if it does not fit.
    """

    def __init__(
        self,
        title: str,
        target: Target,
        known: KnownKernels | None,
        *,
        decide: Callable[[tile.ReduceOp, Fixed], Decided],
        spell: Callable[[tile.ReduceOp, Decided], str],
        read: Callable[[tile.ReduceOp, str], Decided],
    ) -> None:
        about, spelled = (title, repr(target)), SpelledStructure()

        def kept(op: tile.ReduceOp, fixed: Fixed) -> Decided:
            if known is None:
                return decide(op, fixed)
            key = digest(*about, repr(fixed), repr(spelled.of(op)))
            text = known.decision(key)
            if text is not None:
                with suppress(ValueError):
                    return read(op, text)
            made = decide(op, fixed)
            known.note_decision(key, spell(op, made))
            return made

        super().__init__(kept)
