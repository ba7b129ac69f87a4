"""`popgraph tune`: measures candidate schedules, and keeps the fastest for this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
    Dimensions,
    Folders,
    ModelFile,
    Switch,
    Threads,
    Train,
    Values,
    Winograd,
    options,
)
from popgraph.support.writing import write_text

if TYPE_CHECKING:
    from popgraph.measure.tuner import Tuner


def command(
    model: ModelFile,
    seconds: Annotated[float, typer.Option(min=0, help="Minimum measuring time.")] = 10.0,
    threads: Threads = 1,
    few: Annotated[
        int, typer.Option(min=2, help="Number of candidate schedules per contraction.")
    ] = 6,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Also write the schedules to this file."
        ),
    ] = None,
    dim: Dimensions = None,
    value: Values = None,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    train: Train = False,
    folders: Folders = None,
) -> None:
    """
    Measure the best schedules by the cost model, and keep the fastest for this machine.

    \b
    popgraph tune model.onnx
    popgraph tune model.onnx --dim N=1 --seconds 60 --threads 2 -o schedules.json
    popgraph tune net.pgraph --train --dim N=32

    Later compilations on this machine use the measured schedules of the same contractions; --tuned
    off ignores them. The model is compiled once per candidate rank. These programs run in
    interleaved rounds, every kernel timed separately on the memory that the previous one left; the
    fastest of all rounds counts.
    """
    from popgraph.backends.registry import DEFAULT, backend_named
    from popgraph.cli import models
    from popgraph.cli.report import note
    from popgraph.compiler import for_this_machine
    from popgraph.dialects.tile.structured.schedule_file import text_of
    from popgraph.measure.timing import pin
    from popgraph.measure.tuner import Tuner

    if output is not None:
        models.check_place(output, "--output")
    pin(threads)
    module, compilation, step = models.opened(model, dim, value, train=train)
    wanted = options(winograd, None, Switch.OFF, activations=activations)
    wanted = models.with_step(wanted, step)
    made = for_this_machine(wanted, threads)
    tuning = Tuner(module, compilation, made, threads, few)
    tuning.measure(seconds)
    tuning.decide(seconds / 2)
    rows = [each.row() for each in tuning.contractions]
    path = backend_named(DEFAULT).tools.keep_measured(rows)
    if output is not None:
        write_text(output, text_of(rows))
    typer.echo(text(str(model), tuning))
    note(f"kept in {path}")


def text(model: str, tuning: Tuner) -> str:
    """The table of contractions, longest first, and the total."""
    from popgraph.support.tables import table

    rows: list[tuple[str, ...]] = [("before us", "after us", "before / after", "which", "now")]
    for each in sorted(tuning.contractions, key=lambda each: -each.before):
        name = ", ".join(each.candidates.names[:3]) or each.candidates.text.split(";")[0]
        more = " ..." * (len(each.candidates.names) > 3)
        now = str(each.spec) if each.best else "as it was"
        ratio = each.before / each.after if each.after else 1.0
        times = (f"{each.before / 1e3:9.1f}", f"{each.after / 1e3:8.1f}", f"{ratio:14.2f}")
        rows.append((*times, name + more, now))
    whole = f"{model}: {tuning.before / 1e3:.1f} us before, {tuning.after / 1e3:.1f} us after"
    refused = "; together they are not faster, so nothing changes" * tuning.is_slower
    return f"{whole}{refused}\n\n{table(rows)}"
