"""Steps of the pipeline, and the validation of their order by what passes declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.levels import level_of
from popgraph.passes.base import Pass
from popgraph.passes.options import Options
from popgraph.passes.properties import PROPERTIES, Property


@dataclass(frozen=True)
class Step:
    """One line of the pipeline."""

    level: str
    """The level that the pass works on."""
    pass_class: type[Pass]
    reason: str
    """The reason for its position; empty if the declarations of the pass state it."""
    optional: bool = False
    """Whether programs are also correct without it, only slower or larger."""
    to: str | None = None
    """The level that the pass lowers to."""
    settles: bool = False
    """Whether it decides the set of nodes, and so the identity of a program: see `settle_nodes`."""
    after: tuple[str, ...] = ()
    """Passes that this run of a pass follows; `Pass.AFTER` is about all runs."""
    before: tuple[str, ...] = ()
    """Passes that follow this run of a pass."""

    @property
    def result(self) -> str:
        """The level of the module after the pass."""
        return self.to or self.level

    @property
    def name(self) -> str:
        """The name of the pass."""
        return self.pass_class.name

    @property
    def declared(self) -> str:
        """The declarations of the step and its pass: `needs expanded; after dce`."""
        made = self.pass_class
        parts = {
            "needs": made.NEEDS,
            "gives": made.GIVES,
            "may end": made.LOSES,
            "after": (*made.AFTER, *self.after),
            "before": (*made.BEFORE, *self.before),
        }
        return "; ".join(
            f"{word} {', '.join(map(str, found))}" for word, found in parts.items() if found
        )

    @property
    def why(self) -> str:
        """The reason for its position: the stated one, or else its declarations."""
        return self.reason or self.declared

    def make(self, options: Options) -> Pass | None:
        """The pass configured by these options; None if they do not need it."""
        return self.pass_class.of(options)


@dataclass(frozen=True)
class Unmet:
    """A need of a step that the steps before it do not meet, whichever of them are left out."""

    step: Step
    needed: Property
    loser: Step | None
    """The last step before it that may end the property, if it held; else None."""
    giver: Step | None
    """The first step that always gives the property; None without one."""

    def __str__(self) -> str:
        return f"{self.step.name} needs the property {self.needed} ({self.needed.about})"

    @property
    def hint(self) -> str:
        """The order that meets the need."""
        name, giver = self.step.name, self.giver
        if giver is None:
            return f"no pass gives {self.needed}"
        if self.loser is None:
            return f"{giver.name} gives it: {name} must run after {giver.name}"
        return (
            f"{self.loser.name} may end it: it must not run between {giver.name}, which gives it, "
            f"and {name}"
        )


@dataclass(frozen=True)
class Disorder:
    """A step on the wrong side of another one."""

    step: Step
    word: str
    """The side on which the step belongs: "before" or "after"."""
    other: str

    def __str__(self) -> str:
        return f"{self.step.name} must run {self.word} {self.other}"


def unmet(steps: Sequence[Step]) -> Iterator[Unmet]:
    """
    The needs that some choice of optional steps leaves unmet.

    Properties are independent, so one walk covers all choices: an optional step loses, but does not
    give. Lowering ends the properties of the level above.
    """
    held = set[Property]()
    losers: dict[Property, Step] = {}
    for step in steps:
        for needed in step.pass_class.NEEDS:
            if needed not in held:
                yield Unmet(step, needed, losers.get(needed), _giver(needed, steps))
        lost = held.intersection(step.pass_class.LOSES)
        losers |= dict.fromkeys(lost, step)
        held -= lost
        if not step.optional:
            held.update(step.pass_class.GIVES)
        held = {one for one in held if one.level == step.result}


def _giver(wanted: Property, steps: Sequence[Step]) -> Step | None:
    certain = (step for step in steps if not step.optional)
    return next((step for step in certain if wanted in step.pass_class.GIVES), None)


def disorders(steps: Sequence[Step]) -> Iterator[Disorder]:
    """
    The steps on the wrong side of another one: before its last run, or after its first.

    Steps that settle nodes come first of all, as they also run alone.
    """
    for place, step in enumerate(steps):
        earlier = {one.name for one in steps[:place]}
        later = {one.name for one in steps[place + 1 :]}
        for name in (*step.pass_class.AFTER, *step.after):
            if name in later:
                yield Disorder(step, "after", name)
        for name in (*step.pass_class.BEFORE, *step.before):
            if name in earlier:
                yield Disorder(step, "before", name)
        if place and step.settles and not steps[place - 1].settles:
            yield Disorder(step, "before", steps[place - 1].name)


def check_promises(step: Pass, before: ModuleOp, after: ModuleOp) -> None:
    """AssertionError unless a pass gave its `GIVES`, and kept all properties but its `LOSES`."""
    old, new = level_of(before), level_of(after)
    for one in step.gives:
        if one.level == new and (breach := one.breach(after)) is not None:
            raise AssertionError(f"{step.name} does not give {one} ({one.about}): {breach}")
    for one in PROPERTIES:
        if not old == new == one.level or one in step.LOSES or one.breach(before) is not None:
            continue
        if (breach := one.breach(after)) is not None:
            raise AssertionError(
                f"{step.name} ends {one} ({one.about}), which is not in its LOSES: {breach}"
            )
