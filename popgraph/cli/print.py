"""`popgraph print`: prints a model at a level of the IR, or as C."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import (
    LEVELS_AND_C,
    Folders,
    IndicesChoice,
    Level,
    ScheduleFile,
    Switch,
    Threads,
    Train,
    Tuned,
    Values,
    Winograd,
    level,
    options_here,
    pass_name,
)


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx, .pgraph or .mlir file.")],
    at: Annotated[
        Level, typer.Option(parser=level, metavar=LEVELS_AND_C, help="The level to print.")
    ] = Level.ONNX,
    stop_after: Annotated[
        str | None,
        typer.Option(parser=pass_name, metavar="PASS", help="Print what this pass leaves instead."),
    ] = None,
    print_after: Annotated[
        list[str] | None,
        typer.Option(
            parser=pass_name,
            metavar="PASS",
            help="Print after this pass, too (may be given again).",
        ),
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="N=4", help="The size of a symbolic dimension.")
    ] = None,
    value: Values = None,
    winograd: Winograd = Switch.ON,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    indices: IndicesChoice = None,
    threads: Threads = 1,
    train: Train = False,
    folders: Folders = None,
) -> None:
    """
    Print a model as IR of any level, or as C.

    \b
    popgraph print model.onnx                           as it was written
    popgraph print model.onnx --at graphcore --dim N=4  what is computed
    popgraph print model.onnx --at structured --dim N=4 how: layouts, schedules
    popgraph print model.onnx --at program --dim N=4    how: kernels, buffers
    popgraph print model.onnx --at c --dim N=4          the C
    popgraph print model.onnx --stop-after normalize    in the middle
    popgraph print model.onnx --at c --value shape=2,3  of an input that decides structure
    popgraph print net.pgraph --train --dim N=4 --stop-after autodiff
    """
    from popgraph import compiler
    from popgraph.backends.c.emit import sources
    from popgraph.cli import models
    from popgraph.passes.observer import Observer
    from popgraph.support.debug import Settings

    deepest = Level.PROGRAM if at == Level.C or stop_after else at
    lowered = deepest != Level.ONNX or bool(stop_after)
    module, compilation, training = models.opened(model, dim, value, train=train, static=lowered)
    made = options_here(winograd, schedule, tuned, threads, indices)
    made = replace(made, training=training)
    if lowered:
        observer = Observer(
            Settings.from_environment(), print_after or (), compiler.same_meaning, sys.stdout
        )
        compiler.lower(
            module, compilation, made, level=deepest.value, until=stop_after, observer=observer
        )
    if at == Level.C and not stop_after:
        typer.echo("\n".join(sources(module).values()))
        return
    if not lowered:
        for name in models.structural(module, compilation):
            typer.echo(f"// input {name!r} decides the structure: a program for each of its values")
    typer.echo(str(module))
