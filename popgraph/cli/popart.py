"""`popgraph popart`: lists PopART's names, and what each of them does here."""

from __future__ import annotations

from typing import Annotated

import typer

ABOUT = """Every public name of PopART 3.4 and what it does here. "Works": what PopART's documents
say. "Accepted without effect": programs may use it, and results do not depend on it. "Refused": the
error says so, as without an IPU. Methods of both kinds of session stand under `Session`, the names
of patterns under `Patterns`. Members of enumerations and the functions `reserved...Prefix` are not
listed: all of them are there."""


def command(
    markdown: Annotated[bool, typer.Option(help="As the page docs/popart.md.")] = False,
) -> None:
    """
    List PopART's names, and what each of them does here.

    \b
    popgraph popart
    popgraph popart --markdown > popart.md

    A name works, is accepted without effect, is refused as PopART refuses it without an IPU, or is
    not here yet; the last column says why.
    """
    from popgraph.cli.report import markdown_page
    from popgraph.session.surface import entries
    from popgraph.support.tables import table

    rows = [
        (f"{one.owner}.{one.name}" if one.owner else one.name, one.standing.value, one.why)
        for one in entries()
    ]
    if markdown:
        typer.echo(markdown_page("PopART's names", ABOUT, ("name", "here", "why"), rows))
    else:
        typer.echo(table(rows))
