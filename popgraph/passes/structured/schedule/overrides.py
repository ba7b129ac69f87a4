"""Schedule overrides: matches contractions to schedules set by users or by measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import NameLoc
from xdsl.ir import Operation

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.structured.schedule_override import BY_NAME, FORMS, Override
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.errors import ErrorGroup, PassError, PopgraphError

MOST_NAMED = 5
"""Contractions of a model that an error lists."""


def contraction_text(op: tile.ReduceOp, fixed: Sequence[bool]) -> str:
    """
    The structure of a contraction as text, without its name and its epilogue.

    It lists the element type, the loops over results and over terms, the linear index of every
    operand and result, and which factors are `fixed` (constant at load).
    """
    # Equal texts get equal schedules, so a measurement holds for all layers of one shape.
    sizes, rank = op.sizes, op.parallel_rank
    factors = zip(fixed, ("lhs", "rhs"), strict=True)
    names = [f"{'constant ' * is_fixed}{name}" for is_fixed, name in factors]
    names += ["extra"] * len(op.epilogue_inputs) + ["block"] * len(op.block_inputs)
    names += ["result"] * len(op.outputs)
    indices = [
        f"{name} {_sum(offset(tensor(value), map_, sizes[: map_.num_dims]))}"
        for name, (value, map_) in zip(names, op.mapped, strict=True)
    ]
    loops = [f"d{dim}: {size}" for dim, size in enumerate(sizes)]
    outer, inner = ", ".join(loops[:rank]), ", ".join(loops[rank:])
    return f"{tensor(op.lhs).element_type} [{outer}] sum [{inner}]; {'; '.join(indices)}"


def _sum(form: Linear) -> str:
    terms = sorted((str(atom), factor) for atom, factor in form.terms.items())
    texts = [atom if factor == 1 else f"{factor}*{atom}" for atom, factor in terms]
    if form.constant or not texts:
        texts.append(str(form.constant))
    return " + ".join(texts)


def name_of(op: Operation) -> str:
    """The user's name of an operation, or ""."""
    return op.location.desc.data if isinstance(op.location, NameLoc) else ""


@dataclass
class OverrideStatus:
    """An override, whether a contraction used it, and why others refused it."""

    override: Override
    forced: bool
    """Whether a user set it, so that a misfit is an error; measured ones are only hints."""
    used: bool = False
    refusals: list[PopgraphError] = field(default_factory=list)

    def refuse(self, op: Operation, why: str, fitting: Iterable[str]) -> None:
        """Records that `op` cannot run like this, and lists the schedules that fit it."""
        # One refusal is enough: contractions with the same text fail for the same reason.
        if self.forced and not self.refusals:
            text = "; ".join(fitting) or "nothing but `plain`"
            which, name = self.override.which, name_of(op)
            where = f"{which} ({name})" if name and which != BY_NAME + name else which
            what = f"the schedule {str(self.override.spec)!r} does not fit: {why}"
            self.refusals.append(
                PassError(what, where, f"use a schedule that fits, the cheapest first: {text}")
            )


class Overrides:
    """
    Overrides of the schedules of a module's contractions.

    `schedules` are the user's; one that no contraction can follow is an error. `measured` come from
    earlier measurements and apply where they fit.
    """

    def __init__(self, schedules: Iterable[str], measured: Iterable[str] = ()) -> None:
        self._all = [OverrideStatus(_read(text), True) for text in schedules]
        self._by_which: dict[str, OverrideStatus] = {}
        for text in measured:
            override = _read(text)
            self._by_which[override.which] = OverrideStatus(override, False)
        for status in self._all:
            self._by_which[status.override.which] = status
        self._met: dict[str, str] = {}

    def about(self, op: tile.ReduceOp, fixed: Sequence[bool]) -> Iterator[OverrideStatus]:
        """The overrides of one contraction: first by its name, then by its text."""
        if not self._by_which:
            return
        text = contraction_text(op, fixed)
        self._met.setdefault(text, name_of(op))
        for which in (BY_NAME + name_of(op), text):
            if which in self._by_which:
                yield self._by_which[which]

    def check(self, winograd: bool) -> None:
        """Raises errors for the user's overrides that no contraction followed."""
        # use-winograd and schedule-contractions each see all overrides, and check their own kind.
        errors: list[PopgraphError] = []
        for status in self._all:
            if not status.used and (status.refusals or bool(status.override.spec.size) == winograd):
                errors += status.refusals or [self._unknown(status.override, winograd)]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ErrorGroup(errors)

    def _unknown(self, override: Override, winograd: bool) -> PopgraphError:
        known = [f"{BY_NAME}{name}" if name else text for text, name in self._met.items()]
        listed = "; ".join(known[:MOST_NAMED]) + "; ..." * (len(known) > MOST_NAMED)
        return PassError(
            "Winograd's transforms need a 3x3 or 2x2 convolution of stride 1"
            if winograd
            else "the schedule names a contraction that this model does not have",
            override.which,
            f"name a contraction: {listed or 'there are none'}; `popgraph schedules` prints all",
        )


def _read(text: str) -> Override:
    try:
        return Override.of(text)
    except ValueError as error:
        raise PassError(str(error), hint=f"write {FORMS}") from error
