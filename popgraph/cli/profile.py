"""`popgraph profile`: reports time and memory of every kernel call."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
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
        list[str] | None, typer.Option(metavar="N=4", help="Size of a symbolic dimension.")
    ] = None,
    value: Values = None,
    threads: Threads = 1,
    rounds: Annotated[
        int, typer.Option(min=1, help="Number of runs; the minimum of each time is reported.")
    ] = ROUNDS,
    rows: Annotated[int, typer.Option(min=1, help="Number of calls in the table.")] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with charts.")
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write one row per call and pass."),
    ] = None,
    trace_file: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write a trace for Perfetto or Chrome."),
    ] = None,
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
    Show the time of each kernel, and the memory in use over time.

    \b
    popgraph profile model.onnx
    popgraph profile model.onnx --dim N=1 --threads 2 --rows 50
    popgraph profile model.onnx --json profile.json --html profile.html
    popgraph profile model.onnx --trace trace.json     for https://ui.perfetto.dev
    popgraph profile net.pgraph --train --dim N=32
    popgraph profile model.onnx --device ipu:2         a model of two IPUs

    Every kernel call is timed separately, in program order, on the memory that the previous call
    left. Times are the fastest of all rounds: CPU times for one thread, wall times for more.

    Calls inside a loop or a branch are indented below it, with the number of calls per step, their
    total time, the iterations of a loop, and how often each branch was taken. Time outside kernels
    appears as "the loop itself". These times come from an instrumented program that reads the clock
    around each call; that overhead is measured and subtracted, so that the parts add up to the time
    of the loop without instrumentation.

    With --device nothing runs: a model of IPUs computes the cycles of bulk-synchronous steps, and
    the memory of tiles. `docs/ipu-model.md` describes its assumptions and limits.
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
    module, compilation, step = models.opened(model, dim, value, train=train, assumed=True)
    made = options(winograd, schedule, tuned, passes=extra, activations=activations)
    made = models.with_step(made, step)
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
    """Prints the report of the IPU model."""
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
    """The report in one of its formats, all with the same numbers."""
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
