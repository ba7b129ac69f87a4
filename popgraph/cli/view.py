"""`popgraph view`: shows a model in the browser, from its graph down to C."""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from popgraph.viewer.viewing import View

ROUNDS = 20
TIMES = ("--json", "--csv")
"""The options that keep what was measured."""


def command(
    model: ModelFile,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the page as one file instead."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Keep the times by level; with --profile."),
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Keep them as a row for each; with --profile."),
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
    popgraph view model.onnx --profile --csv times.csv

    The page is served on this machine only, to whoever has the address that is printed, until
    Ctrl+C ends it; when files are asked for, they are written instead. Nothing leaves the machine.
    The times of --json and --csv are those of the flame graph in the page. Sizes that nobody says
    are 1.
    """
    from popgraph.cli import models
    from popgraph.viewer.document import Document
    from popgraph.viewer.server import Server
    from popgraph.viewer.viewing import View

    wanted = {"--save": save, "--json": json_file, "--csv": csv_file}
    files = {option: file for option, file in wanted.items() if file is not None}
    for option, file in files.items():
        models.check_place(file, option)
        if option in TIMES and not profile:
            raise typer.BadParameter("times are measured with --profile", param_hint=option)
    module, compilation, training = models.opened(
        model, dim, value, train=train, static=False, assumed=True
    )
    made = replace(
        options_here(winograd, schedule, tuned, threads, passes=extra), training=training
    )
    rounds = ROUNDS if profile else 0
    document = Document(model.name, module, compilation, made, rounds, origin=model)
    if files:
        _write(files, View(document))
        return
    server = Server(document)
    typer.echo(f"{server.address}  (Ctrl+C ends it)")
    if browser:
        webbrowser.open(server.address)
    try:
        server.run()
    except KeyboardInterrupt:
        typer.echo("")


def _write(files: dict[str, Path], shown: View) -> None:
    """The page and its times, each as one file."""
    from popgraph.support.writing import write_text

    texts = {"--save": shown.html, "--json": shown.times_as_json, "--csv": shown.times_as_csv}
    for option, file in files.items():
        write_text(file, texts[option]())
        typer.echo(f"{file} is written")
