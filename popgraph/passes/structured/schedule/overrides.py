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
    What a contraction does, whatever it is called and whatever is done to its sums.

    Its element type, the loops over results and those over terms, where each step of them goes in
    the memory of every operand and result, and which factors are `fixed` when a program is loaded.
    """
    sizes, rank = op.sizes, op.parallel_rank
    factors = zip(fixed, ("lhs", "rhs"), strict=True)
    names = [f"{'constant ' * is_fixed}{name}" for is_fixed, name in factors]
    names += ["extra"] * len(op.epilogue_inputs) + ["block"] * len(op.block_inputs)
    names += ["result"] * len(op.outputs)
    places = [
        f"{name} {_sum(offset(tensor(value), map_, sizes[: map_.num_dims]))}"
        for name, (value, map_) in zip(names, op.mapped, strict=True)
    ]
    loops = [f"d{dim}: {size}" for dim, size in enumerate(sizes)]
    outer, inner = ", ".join(loops[:rank]), ", ".join(loops[rank:])
    return f"{tensor(op.lhs).element_type} [{outer}] sum [{inner}]; {'; '.join(places)}"


def _sum(form: Linear) -> str:
    terms = sorted((str(atom), factor) for atom, factor in form.terms.items())
    texts = [atom if factor == 1 else f"{factor}*{atom}" for atom, factor in terms]
    if form.constant or not texts:
        texts.append(str(form.constant))
    return " + ".join(texts)


def name_of(op: Operation) -> str:
    """The user's name for an operation; empty when there is none."""
    return op.location.desc.data if isinstance(op.location, NameLoc) else ""


@dataclass
class OverrideStatus:
    """An override, and what became of it."""

    override: Override
    forced: bool
    """It is an error if it cannot be had; else it is only a good idea."""
    used: bool = False
    refusals: list[PopgraphError] = field(default_factory=list)

    def refuse(self, op: Operation, why: str, fitting: Iterable[str]) -> None:
        """Notes that `op` cannot run like this, and what it could do."""
        if self.forced and not self.refusals:
            text = "; ".join(fitting) or "nothing but `plain`"
            which, name = self.override.which, name_of(op)
            where = f"{which} ({name})" if name and which != BY_NAME + name else which
            what = f"the schedule {str(self.override.spec)!r} does not fit: {why}"
            self.refusals.append(
                PassError(what, where, f"what fits, the best by estimate first: {text}")
            )


class Overrides:
    """
    What is to be done about the contractions of a module.

    `schedules` are the user's: those that no contraction can follow end in errors. `measured` are
    those of earlier measurements, and are followed where they fit.
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
        """The overrides of one contraction; that of its name comes first."""
        if not self._by_which:
            return
        text = contraction_text(op, fixed)
        self._met.setdefault(text, name_of(op))
        for which in (BY_NAME + name_of(op), text):
            if which in self._by_which:
                yield self._by_which[which]

    def check(self, winograd: bool) -> None:
        """Errors for the user's overrides, of one kind, that nothing followed."""
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
            "Winograd's transforms are wanted of what is no 3x3 convolution that moves by one"
            if winograd
            else "a schedule is given for a contraction that this model does not have",
            override.which,
            f"it has {listed or 'none'}; `popgraph schedules` prints all",
        )


def _read(text: str) -> Override:
    try:
        return Override.of(text)
    except ValueError as error:
        raise PassError(str(error), hint=f"a way is {FORMS}") from error
