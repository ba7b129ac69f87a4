"""`popgraph view`: shows a model in the browser, from its graph down to C."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
    Device,
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
    ipu_of,
    options_here,
)

if TYPE_CHECKING:
    from popgraph.viewer.document import Document

ROUNDS = 20
TIMES = ("--json", "--csv")
"""Options that save the measured times."""


def command(
    model: ModelFile,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the page to a file instead."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", help="Write the times by level; requires --profile."
        ),
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write the times as rows; requires --profile."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also measure every kernel call.")
    ] = False,
    dim: Dimensions = None,
    value: Values = None,
    threads: Threads = 1,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    train: Train = False,
    device: Device = None,
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
    popgraph view model.onnx --device ipu:2        tiles and steps, as a model of two IPUs has them

    The page is served on this machine only, to anyone with the printed address, until Ctrl+C ends
    it; with file options, files are written instead. Nothing leaves the machine. --json and --csv
    write the times of the page's flame graph. With --device, the page also shows the IPU model: the
    memory of every tile, live tensors at each step, and cycles. Unspecified sizes are 1.
    """
    from popgraph.cli import models

    ipu = ipu_of(device)
    wanted = {"--save": save, "--json": json_file, "--csv": csv_file}
    files = {option: file for option, file in wanted.items() if file is not None}
    for option, file in files.items():
        models.check_place(file, option)
        if option in TIMES and not profile:
            raise typer.BadParameter("times are measured with --profile", param_hint=option)

    def made() -> Document:
        from popgraph.viewer.document import Document

        module, compilation, step = models.opened(
            model, dim, value, train=train, static=False, assumed=True
        )
        chosen = options_here(
            winograd, schedule, tuned, threads, passes=extra, activations=activations
        )
        options = models.with_step(chosen, step)
        rounds = ROUNDS if profile else 0
        return Document(model.name, module, compilation, options, rounds, model, ipu=ipu)

    if files:
        _write(files, made())
    elif train or model.suffix != ".onnx":
        document = made()  # Mistakes are reported before a browser opens.
        _serve(lambda: document, browser, None)
    else:
        from popgraph.viewer.sketch import sketch_of

        _serve(made, browser, sketch_of(model))


def _serve(made: Callable[[], Document], browser: bool, sketch: str | None) -> None:
    """Serves the sketch immediately, and the document once it is built, until Ctrl+C."""
    from popgraph.viewer.server import Awaited, Server

    awaited = Awaited()
    server = Server(awaited, sketch)
    with server.running() as thread:
        typer.echo(f"{server.address}  (Ctrl+C ends it)")
        if browser:
            webbrowser.open(server.address)
        try:
            awaited.made.set_result(made())
            thread.join()
        except KeyboardInterrupt:
            typer.echo("")


def _write(files: dict[str, Path], document: Document) -> None:
    """Writes the page and its times, one file each."""
    from popgraph.support.writing import write_text
    from popgraph.viewer.viewing import View

    shown = View(document)
    texts = {"--save": shown.html, "--json": shown.times_as_json, "--csv": shown.times_as_csv}
    for option, file in files.items():
        write_text(file, texts[option]())
        typer.echo(f"{file} is written")
