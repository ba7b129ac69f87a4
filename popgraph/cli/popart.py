"""`popgraph popart`: lists PopART's names, and their effect in PopGraph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from popgraph.popart.surface import Entry

ABOUT = """Every public name of PopART 3.4 and what it does here. "Works": what PopART's documents
say. "Accepted without effect": programs may use it, and results do not depend on it. "Refused": the
error says so, as without an IPU. Methods of both kinds of session are under `Session`. Members of
enumerations and the functions `reserved...Prefix` are not listed: all of them exist.

Options of a session and patterns are listed by what they change. "Changes the program": results,
speed or memory of what runs, or what a session keeps or refuses; the last column says which.
"Changes reports only": the summary or the modelled cycles. "Shown in the IR only": in the pictures
of `dotChecks`; the program that runs is the same. "No effect": accepted, checked as PopART checks
it, and nothing differs."""


def _counted(what: str, found: Sequence[Entry]) -> str:
    """Counts of names by effect."""
    counts = Counter(one.effect.value for one in found).most_common()
    return f"Of {len(found)} {what}: {'; '.join(f'{n} {name}' for name, n in counts)}."


def command(
    markdown: Annotated[bool, typer.Option(help="Print the page docs/popart.md.")] = False,
) -> None:
    """
    List PopART's names, and the effect of each in PopGraph.

    \b
    popgraph popart
    popgraph popart --markdown > popart.md

    A name works, is accepted without effect, or is refused as PopART refuses it without an IPU. An
    option or a pattern changes the program, changes reports only, is shown in the IR only, or has
    no effect. The last column gives the details.
    """
    from popgraph.cli.report import markdown_page
    from popgraph.popart.surface import entries, options, patterns
    from popgraph.support.tables import table

    rows = [
        (f"{one.owner}.{one.name}" if one.owner else one.name, one.effect.value, one.why)
        for one in entries()
    ]
    if markdown:
        about = f"{ABOUT}\n\n{_counted('options', options())} {_counted('patterns', patterns())}"
        typer.echo(markdown_page("PopART's names", about, ("name", "here", "why"), rows))
    else:
        typer.echo(table(rows))
