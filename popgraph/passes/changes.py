"""Differences between the IR texts before and after passes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher, unified_diff

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Pass
from popgraph.passes.observer import Observer
from popgraph.support.errors import PassError

ALL = "all"
"""Selects every pass that changes something."""
CONTEXT = 3
"""Number of unchanged lines shown around each change."""


@dataclass(frozen=True)
class Stretch:
    """A range of passes: the text before `first` is compared with the text after `last`."""

    first: str
    last: str

    @staticmethod
    def of(text: str) -> Stretch:
        """Parses `cse` or `expand..dce`."""
        first, dots, last = text.partition("..")
        return Stretch(first, last if dots else first)

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first}..{self.last}"


@dataclass
class Changes(Observer):
    """An observer that collects the changes of passes as unified diffs of IR text."""

    stretches: tuple[Stretch, ...] = ()
    every: bool = False
    """Whether to show each pass that changes something."""
    found: list[str] = field(default_factory=list)
    """The differences, in the order of the passes."""
    _begun: dict[Stretch, str] = field(default_factory=dict)
    _ended: set[Stretch] = field(default_factory=set)
    _latest: str = ""
    """The last pass that changed something."""

    @contextmanager
    def watching(self, step: Pass, module: ModuleOp, weights: WeightStore) -> Iterator[None]:
        text = self.text(module)
        for one in self.stretches:
            if one.first == step.name and one not in self._ended:
                self._begun.setdefault(one, text)
        with super().watching(step, module, weights):
            yield
        after = self.text(module)
        before, self._latest = self._latest, step.name if text != after else self._latest
        if self.every and text != after:
            self.found.append(difference(text, after, step.name))
        for one in self.stretches:
            if one.last == step.name and one in self._begun:
                begun = self._begun[one] if one.first != one.last else text
                shown = difference(begun, after, str(one))
                self.found.append(shown or f"// {one} changed nothing: {_why(before)}")
                if one.first != one.last:
                    del self._begun[one]
                self._ended.add(one)

    def check(self) -> None:
        """Raises an error for requested passes that did not run."""
        missed = [str(one) for one in self.stretches if one not in self._ended]
        if missed:
            raise PassError(
                f"{' and '.join(missed)} did not run here, in this order",
                "--diff",
                "`popgraph passes` lists them in order; --at says how far down they run",
            )


def _why(latest: str) -> str:
    """Explains why a pass changed nothing; `latest` is the last pass that changed something."""
    if not latest:
        return "it ran, and no earlier pass changed anything either"
    return (
        f"it ran on the result of {latest} and found nothing to do; "
        f"--diff {latest} shows that change, --diff all every pass"
    )


def difference(before: str, after: str, title: str) -> str:
    """A unified diff of two texts, with the pass as title; see `renumbered`."""
    old, new = before.splitlines(), after.splitlines()
    same_numbers = renumbered(old, new)
    lines = unified_diff(
        old if same_numbers == new else same_numbers,
        new,
        f"before {title.partition('..')[0]}",
        f"after {title.rpartition('..')[2]}",
        n=CONTEXT,
        lineterm="",
    )
    return "\n".join(lines)


def renumbered(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """
    The lines before, with values renumbered as in the lines after.

    One new operation at the top of a kernel renumbers all later values, and the diff would be the
    whole kernel. Lines are therefore matched without numbers, and values that matching lines define
    are equal. Uses are renamed like definitions, so a changed operand is a difference. The number
    of a removed value gets an apostrophe if another value has it now: `%2'`.
    """
    old_plain, new_plain = ([NUMBER.sub("%", line) for line in it] for it in (before, after))
    pairs = {
        old + at: new + at
        for old, new, size in SequenceMatcher(None, old_plain, new_plain).get_matching_blocks()
        for at in range(size)
    }
    names, found = dict[str, str](), list[str]()
    taken = {number for line in after for number in NUMBER.findall(line)}
    for at, line in enumerate(before):
        defined = _defined(line)
        gone = [f"{one}'" if one in taken else one for one in defined]
        same = _defined(after[pairs[at]]) if at in pairs else gone
        names.update(zip(defined, same, strict=True))
        found.append(NUMBER.sub(lambda number: names.get(number[0], number[0]), line))
    return found


def _defined(line: str) -> list[str]:
    """Values that a line defines: results, then block arguments, such as loop counters."""
    results = RESULTS.match(line)
    return [*NUMBER.findall(results[0] if results else ""), *ARGUMENT.findall(line)]


NUMBER = re.compile(r"%\d+")
RESULTS = re.compile(r" *%\d+(, %\d+)* = ")
ARGUMENT = re.compile(r"%\d+(?= = |:)")
HEX = re.compile(r'"([0-9a-f]{40,})"')
LIST = re.compile(r"\[([^\[\]]*)\]")
SHOWN_DIGITS = 12
SHOWN_ENTRIES = 6
MOST_ENTRIES = 16


def elided(text: str) -> str:
    """
    IR text for readers: shortens elements of large constants and the ends of long lists.

    The result does not parse any more.
    """
    text = HEX.sub(lambda found: f'"{found[1][:SHOWN_DIGITS]}..."', text)
    return LIST.sub(_shortened, text)


def _shortened(found: re.Match[str]) -> str:
    entries = found[1].split(", ")
    if len(entries) <= MOST_ENTRIES:
        return found[0]
    rest = len(entries) - SHOWN_ENTRIES
    return f"[{', '.join(entries[:SHOWN_ENTRIES])}, ... {rest} more]"
