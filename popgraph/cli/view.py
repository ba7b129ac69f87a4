"""`popgraph view`: shows a model in the browser, from its graph down to C."""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import (
    Dimensions,
    ExtraPasses,
    Folders,
    Load,
    ModelFile,
    ScheduleFile,
    Switch,
    Threads,
    Train,
    Tuned,
    Values,
    Winograd,
    options_here,
)

ROUNDS = 20


def command(
    model: ModelFile,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the page as one file instead."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    profile: Annotated[
        bool, typer.Option("--profile", help="Measure every call of a kernel, too.")
    ] = False,
    dim: Dimensions = None,
    value: Values = None,
    threads: Threads = 1,
    winograd: Winograd = Switch.ON,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    train: Train = False,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Show a model in the browser: its graph at each level, its passes, kernels and memory.

    \b
    popgraph view model.onnx
    popgraph view net.pgraph --dim N=4 --profile
    popgraph view net.pgraph --train
    popgraph view model.onnx --save page.html      one file that works offline

    The page is served on this machine only, to whoever has the address that is printed, until
    Ctrl+C ends it. Nothing leaves the machine. Sizes that nobody says are 1.
    """
    from popgraph.cli import models
    from popgraph.support.writing import write_text
    from popgraph.viewer.document import Document
    from popgraph.viewer.server import Server
    from popgraph.viewer.viewing import View

    if save is not None:
        models.check_place(save, "--save")
    module, compilation, training = models.opened(
        model, dim, value, train=train, static=False, assumed=True
    )
    made = replace(
        options_here(winograd, schedule, tuned, threads, passes=extra), training=training
    )
    rounds = ROUNDS if profile else 0
    document = Document(model.name, module, compilation, made, rounds, origin=model)
    if save is not None:
        write_text(save, View(document).html())
        typer.echo(f"{save} is written")
        return
    server = Server(document)
    typer.echo(f"{server.address}  (Ctrl+C ends it)")
    if browser:
        webbrowser.open(server.address)
    try:
        server.run()
    except KeyboardInterrupt:
        typer.echo("")
