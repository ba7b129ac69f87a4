"""`popgraph bisect`: finds the pass that breaks a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
    Dimensions,
    ExtraPasses,
    Folders,
    Load,
    ModelFile,
    ScheduleFile,
    Switch,
    Threads,
    Train,
    Values,
    Winograd,
    options,
)
from popgraph.support.writing import write_text


def command(
    model: ModelFile,
    dim: Dimensions = None,
    value: Values = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the reproducer.")] = Path(
        "reproducer.mlir"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    schedule: ScheduleFile = None,
    threads: Threads = 1,
    train: Train = False,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Find the pass after which a model fails or computes other results.

    \b
    popgraph bisect model.onnx --dim N=1
    popgraph bisect net.pgraph --train --dim N=4
    popgraph opt reproducer.mlir --check

    The reference backend runs the model on random inputs between passes, and compares; finally, the
    generated C is run, too. Large models take long in the reference: give small dimensions. Exits
    with status 1 if a culprit is found.
    """
    from popgraph.cli import models
    from popgraph.measure.bisect import bisect, options_here

    models.check_place(output, "--output")
    module, compilation, step = models.opened(model, dim, value, train=train)
    made = options(winograd, schedule, Switch.OFF, passes=extra, activations=activations)
    wanted = models.with_step(made, step)
    compilation.weights.own()
    found = bisect(module, compilation, options_here(wanted, threads), seed=seed)
    if found is None:
        typer.echo("no pass breaks this model, nor does the generated C")
        return
    typer.echo(f"{found.name} breaks it: {found.what}")
    write_text(output, found.reproducer)
    typer.echo(f"`popgraph opt {output} --check` shows it again")
    raise typer.Exit(1)
