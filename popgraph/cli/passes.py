"""`popgraph passes`: lists the passes in order, with their reasons."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from popgraph.cli.options import Load
from popgraph.cli.pager import show

ABOUT = """In the order in which they run. Each works at one level, or takes the model to the next
one. Those with a star make programs faster or smaller; the others make them possible."""


def command(
    markdown: Annotated[bool, typer.Option(help="Print the page docs/passes.md.")] = False,
    load: Load = None,
) -> None:
    """
    List the passes in the order in which they run.

    \b
    popgraph passes
    popgraph passes --load my_passes.py

    Each pass works at one level, or lowers the model to the next one. Passes with a star make
    programs faster or smaller; the others are required. `popgraph opt -p PASS` runs one. Passes of
    installed extensions, or of --load, follow with their positions; `--pass` of print, run and
    others adds them to the pipeline.
    """
    from popgraph.cli.report import markdown_page
    from popgraph.ipu.map_to_tiles import MapToTiles
    from popgraph.passes.options import Options
    from popgraph.passes.pipeline import pipeline_of
    from popgraph.support.tables import table

    rows: list[tuple[str, ...]] = []
    for step in pipeline_of(Options(passes=(MapToTiles(),))):
        level = step.level if step.result == step.level else f"{step.level} -> {step.result}"
        about = (inspect.getdoc(step.pass_class) or "").split("\n")[0]
        name = step.pass_class.name + ("*" if step.optional else "")
        rows.append((level, name, about, step.reason) if markdown else (level, name, about))
    if markdown:
        columns = ("level", "pass", "what it does", "why it stands here")
        typer.echo(markdown_page("Passes", ABOUT, columns, rows))
    else:
        listed = {name for _, name, _ in rows}
        show(table([*rows, *(row for row in _from_outside() if row[1] not in listed)]))


def _from_outside() -> list[tuple[str, str, str]]:
    """A row for each registered pass, with its position."""
    from popgraph.cli.report import load_installed
    from popgraph.passes.outside import OUTSIDE
    from popgraph.support.extensions import PASSES

    load_installed(PASSES)
    return [
        (str(place), name, (inspect.getdoc(made) or "").split("\n")[0])
        for name, (made, place) in sorted(OUTSIDE.items())
    ]
