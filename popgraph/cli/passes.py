"""`popgraph passes`: lists the passes in order, with their reasons."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import Load
from popgraph.cli.pager import show

if TYPE_CHECKING:
    from popgraph.support.laws import Proof

ABOUT = """In the order in which they run. Each works at one level, or takes the model to the next
one. Those with a star make programs faster or smaller; the others make them possible. A pass
declares which properties of the module it needs, gives or may end, and which passes it must follow
or precede for better code. It keeps all other properties, which are listed below the passes."""


def command(
    markdown: Annotated[bool, typer.Option(help="Print the page docs/passes.md.")] = False,
    proofs: Annotated[
        bool, typer.Option(help="List the rewrites, and why each one keeps the meaning.")
    ] = False,
    order: Annotated[
        bool, typer.Option(help="List what each pass declares about its position.")
    ] = False,
    load: Load = None,
) -> None:
    """
    List the passes in the order in which they run.

    \b
    popgraph passes
    popgraph passes --load my_passes.py
    popgraph passes --order
    popgraph passes --proofs

    Each pass works at one level, or lowers the model to the next one. Passes with a star make
    programs faster or smaller; the others are required. `popgraph opt -p PASS` runs one. Passes of
    installed extensions, or of --load, follow with their positions; `--pass` of print, run and
    others adds them to the pipeline.

    --order lists the properties of modules, and which of them each pass needs, gives or may end; a
    pass keeps all others. "after" and "before" name passes that it must follow or precede for
    better code.

    --proofs lists the rewrites of the passes with their status (derived, proven, exhaustive, by
    construction, approximate or unproven), and their laws or the reason.
    """
    if proofs:
        show(_proofs())
        return
    from popgraph.cli.report import markdown_page
    from popgraph.ipu.map_to_tiles import MapToTiles
    from popgraph.passes.options import Options
    from popgraph.passes.pipeline import pipeline_of
    from popgraph.passes.properties import PROPERTIES
    from popgraph.support.tables import markdown_table, table

    properties = [(one.level, one.name, one.about) for one in PROPERTIES]
    rows: list[tuple[str, ...]] = []
    for step in pipeline_of(Options(passes=(MapToTiles(),))):
        level = step.level if step.result == step.level else f"{step.level} -> {step.result}"
        about = (inspect.getdoc(step.pass_class) or "").split("\n")[0]
        name = step.pass_class.name + ("*" if step.optional else "")
        if order:
            rows.append((level, name, step.declared))
        elif markdown:
            rows.append((level, name, about, step.declared, step.reason))
        else:
            rows.append((level, name, about))
    if order:
        show(f"{table(properties)}\n\n{table(rows)}")
    elif markdown:
        columns = ("level", "pass", "what it does", "position", "why it stands here")
        typer.echo(markdown_page("Passes", ABOUT, columns, rows))
        typer.echo("\n## Properties\n")
        typer.echo(markdown_table(("level", "property", "statement"), properties))
    else:
        listed = {name for _, name, _ in rows}
        show(table([*rows, *(row for row in _from_outside() if row[1] not in listed)]))


def _proofs() -> str:
    """The rewrites by pass, and the number of each status."""
    from popgraph.passes.proofs import stated
    from popgraph.support.laws import STATUSES
    from popgraph.support.tables import table

    found = list(stated())
    rows = [(one.where, one.name, one.status, _why(one.proof)) for one in found]
    counts = Counter(one.status for one in found)
    laws = {law for one in found for law in one.proof.laws}
    total = ", ".join(f"{counts[status]} {status}" for status in STATUSES)
    return f"{table(rows)}\n\n{len(found)} rewrites: {total}; {len(laws)} laws"


def _why(proof: Proof) -> str:
    """The laws in short, or the reason for the status."""
    texts = [proof.reason] if proof.reason else []
    if proof.laws:
        first, *rest = proof.laws
        more = f" and {len(rest)} more" if rest else ""
        texts.append(f"{first}{more}")
    open_types = sorted({name for law in proof.laws for name in law.unproven})
    if open_types:
        reasons = {reason for law in proof.laws for reason in law.unproven.values()}
        texts.append(f"unproven in {', '.join(open_types)}: {'; '.join(sorted(reasons))}")
    return "; ".join(texts)


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
