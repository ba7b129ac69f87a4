"""`popgraph profile`: reports time and memory of every kernel call."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import (
    Device,
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
    options,
)
from popgraph.measure.profile_report import ROUNDS, Report, csv_of, text
from popgraph.support.writing import write_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.ipu.machine import Ipu
    from popgraph.passes.base import Compilation
    from popgraph.passes.options import Options


def command(
    model: ModelFile,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="N=4", help="The size of a symbolic dimension.")
    ] = None,
    value: Values = None,
    threads: Threads = 1,
    rounds: Annotated[int, typer.Option(min=1, help="How often it runs; minima count.")] = ROUNDS,
    rows: Annotated[int, typer.Option(min=1, help="How many calls the table shows.")] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Keep all numbers.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Keep a page with pictures.")
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Keep a row for each call and pass."),
    ] = None,
    trace_file: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Keep a trace for Perfetto or Chrome."),
    ] = None,
    winograd: Winograd = Switch.ON,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    train: Train = False,
    device: Device = None,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Show which kernels a model spends its time in, and how much memory is in use when.

    \b
    popgraph profile model.onnx
    popgraph profile model.onnx --dim N=1 --threads 2 --rows 50
    popgraph profile model.onnx --json profile.json --html profile.html
    popgraph profile model.onnx --trace trace.json     for https://ui.perfetto.dev
    popgraph profile net.pgraph --train --dim N=32
    popgraph profile model.onnx --device ipu:2         what a model of two IPUs says

    Every call of a kernel is timed alone, in its order and on the memory that the call before it
    left. Times are the fastest of all rounds: of the thread's own clock for one thread, of the
    wall's for more.

    What a loop or a branch runs stands under it: the number of calls in a step, the time of all of
    them together, the turns of a loop, how often each branch was taken. What no kernel accounts for
    is "the loop itself". To tell these times apart, another form of the program reads the clock
    around each call; what that costs is measured and subtracted, and the parts add up to the time
    that the loop takes without it.

    With --device nothing runs: a model of IPUs tells cycles of bulk-synchronous steps, and the
    memory of tiles. `docs/ipu-model.md` says what it rests on and what it leaves out.
    """
    from popgraph.cli import models
    from popgraph.measure.profile import report
    from popgraph.measure.timing import pin

    ipu = ipu_of(device)
    wanted: dict[str, Path | None] = {
        "--json": json_file,
        "--html": html_file,
        "--csv": csv_file,
        "--trace": trace_file,
    }
    files = {option: file for option, file in wanted.items() if file is not None}
    for option, file in files.items():
        models.check_place(file, option)
    if ipu is None:
        pin(threads)
    module, compilation, training = models.opened(model, dim, value, train=train, assumed=True)
    made = replace(options(winograd, schedule, tuned, passes=extra), training=training)
    if ipu is not None:
        _of_model(module, compilation, made, ipu, rows, files)
        return
    found = report(str(model), module, compilation, threads, rounds, made)
    typer.echo(text(found, rows))
    for option, file in files.items():
        write_text(file, _written(option, found))


def _of_model(
    module: ModuleOp,
    compilation: Compilation,
    made: Options,
    ipu: Ipu,
    rows: int,
    files: dict[str, Path],
) -> None:
    """What the model of IPUs says of a program."""
    from popgraph.ipu.model import IpuModel
    from popgraph.ipu.report import content, text
    from popgraph.support.figures import json_text

    if others := files.keys() - {"--json"}:
        message = "what a model of IPUs says is kept by --json; `popgraph view --device` is a page"
        raise typer.BadParameter(message, param_hint=min(others))
    found = IpuModel.of(module, compilation, made, ipu)
    typer.echo(text(found, rows))
    for file in files.values():
        write_text(file, json_text(content(found)) + "\n")


def _written(option: str, found: Report) -> str:
    """The report in one of its forms: all tell the same numbers."""
    from popgraph.cli.profile_page import page
    from popgraph.measure.chrome_trace import chrome_trace
    from popgraph.support.figures import MOMENT, json_text

    match option:
        case "--json":
            return json_text(asdict(found)) + "\n"
        case "--csv":
            return csv_of(found)
        case "--trace":
            return json_text(chrome_trace(found), digits=MOMENT) + "\n"
        case _:
            return page(found)
