"""`popgraph zoo`: lists the networks of the zoo, prints one, or writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.support.writing import write_text

if TYPE_CHECKING:
    from popgraph.zoo import Entry


def command(
    name: Annotated[str, typer.Argument(help="A network; without it, all are listed.")] = "",
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARAMETER=VALUE ...", help="Values of parameters."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .pgraph file to write.")
    ] = None,
) -> None:
    """
    List the networks of the zoo, print the text of one, or write it.

    \b
    popgraph zoo
    popgraph zoo resnet18 classes=10 -o resnet18.pgraph
    popgraph zoo mobilenet_v2 dropout=0 'stages=[[1, 16, 1, 1], [6, 24, 2, 2]]'
    """
    from popgraph import zoo
    from popgraph.cli import models

    if not name:
        from popgraph.support.tables import table

        typer.echo(table([_row(one) for one in zoo.ENTRIES.values()]))
        return
    given = {key: _value(text) for key, text in models.pairs(values or (), "PARAMETER").items()}
    text = zoo.load(name, **given)
    if output is None:
        typer.echo(text, nl=False)
        return
    if output.suffix != ".pgraph":
        raise typer.BadParameter(f"{output.name!r} must end in .pgraph", param_hint="output")
    write_text(output, text)


def _row(entry: Entry) -> tuple[str, ...]:
    """The name, the purpose, and all parameters but lists."""
    short = [
        f"{name}={json.dumps(value)}"
        for name, value in entry.parameters.items()
        if not isinstance(value, list)
    ]
    return entry.name, entry.about, " ".join(short)


def _value(text: str) -> object:
    """A value as Python's or JSON's literals write it; any other text is a string."""
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text
