"""`popgraph schedules`: lists contractions with their schedules and alternatives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
    Dimensions,
    Folders,
    ModelFile,
    Switch,
    Train,
    Tuned,
    Values,
    Winograd,
    options_here,
)
from popgraph.support.writing import write_text

if TYPE_CHECKING:
    from popgraph.passes.structured.alternatives import ContractionCandidates


def command(
    model: ModelFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File for the schedules.")
    ] = None,
    few: Annotated[
        int, typer.Option(min=0, help="Number of alternatives shown per contraction.")
    ] = 5,
    dim: Dimensions = None,
    value: Values = None,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    tuned: Tuned = Switch.ON,
    train: Train = False,
    folders: Folders = None,
) -> None:
    """
    Print the schedule of every kind of contraction of a model, and the next best candidates.

    \b
    popgraph schedules model.onnx -o schedules.json
    popgraph run model.onnx --random --schedule schedules.json

    `schedule` is the chosen schedule. Edit it, for example to one of the `others`, and pass the
    file to `run`, `bench`, `profile`, `print`, `emit` or `opt` by --schedule. A row may have "op":
    NAME instead of "contraction": it then applies to the contractions of this operation of the
    model. Cycles are estimates of the cost model for one contraction on one thread.
    """
    from popgraph.cli import models
    from popgraph.dialects.tile.structured.schedule_file import text_of
    from popgraph.measure.alternatives import before_scheduling, contraction_candidates_of

    if output is not None:
        models.check_place(output, "--output")
    module, compilation, step = models.opened(model, dim, value, train=train)
    made = options_here(winograd, None, tuned, activations=activations)
    made = models.with_step(made, step)
    module = before_scheduling(module, compilation, made)
    text = text_of([row(each, few) for each in contraction_candidates_of(module, made)])
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)


def row(found: ContractionCandidates, few: int) -> dict[str, Any]:
    """A contraction as a row of a schedule file."""
    (spec, cycles), *others = found.specs
    return {
        "contraction": found.text,
        "ops": found.names,
        "schedule": str(spec),
        "cycles": round(cycles),
        "others": [{"schedule": str(other), "cycles": round(cost)} for other, cost in others[:few]],
    }
