"""`popgraph passes`: what happens to a model, and in which order?"""

from __future__ import annotations

import inspect

import typer


def command() -> None:
    """
    List the passes in the order in which they run.

    Each works at one level (or takes the model to the next one). Those with a star make programs
    faster or smaller; the others make them possible. `popgraph opt -p PASS` runs one.
    """
    from popgraph.cli.report import table
    from popgraph.passes.pipeline import PIPELINE

    rows = []
    for step in PIPELINE:
        level = step.level if step.result == step.level else f"{step.level} -> {step.result}"
        about = (inspect.getdoc(step.pass_class) or "").split("\n")[0]
        rows.append((level, step.pass_class.name + ("*" if step.optional else ""), about))
    typer.echo(table(rows))
