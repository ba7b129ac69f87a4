"""`popgraph bench`: times a model against other runtimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

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
    Tuned,
    Values,
    Winograd,
    options,
)
from popgraph.support.errors import UnsupportedError
from popgraph.support.figures import json_text

if TYPE_CHECKING:
    from popgraph.measure.comparison import Result, Row


class Format(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


def command(
    model: ModelFile,
    against: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Peers to compare with, comma-separated: onnxruntime, openvino, torch.",
        ),
    ] = "",
    dim: Dimensions = None,
    value: Values = None,
    threads: Threads = 1,
    seconds: Annotated[float, typer.Option(min=0, help="Minimum measuring time.")] = 3.0,
    repeats: Annotated[int, typer.Option(min=1, help="Minimum number of rounds.")] = 10,
    accuracy: Annotated[
        bool,
        typer.Option(
            "--accuracy", help="Also compare the results with a computation in double precision."
        ),
    ] = False,
    form: Annotated[
        Format, typer.Option("--format", case_sensitive=False, help="Output format.")
    ] = Format.TABLE,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Time a model, alternating with other runtimes in the same process.

    \b
    popgraph bench model.onnx
    popgraph bench model.onnx --dim N=1 --threads 2 --seconds 10
    popgraph bench model.onnx --against onnxruntime,openvino --accuracy --format markdown

    The process is pinned to as many cores as there are threads. With one thread, times are CPU
    times; otherwise wall times. Rates count two operations for each multiply-add of the model, with
    the largest possible trip count of each loop. The peak is a loop of multiply-adds, timed in the
    same rounds.
    """
    from popgraph.cli import models
    from popgraph.measure.comparison import Comparison
    from popgraph.measure.peers import PEERS
    from popgraph.measure.timing import pin

    names = [name.strip() for name in against.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PEERS]:
        known = ", ".join(PEERS)
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {known}", param_hint="--against")
    pin(threads)
    module, compilation, _ = models.opened(model, dim, value, assumed=True)
    if accuracy and models.is_hosted(module):
        raise UnsupportedError(
            "exact results are not available for a model with host steps",
            str(model),
            "leave out --accuracy",
        )
    made = options(winograd, schedule, tuned, passes=extra, activations=activations)
    comparison = Comparison(str(model), module, compilation, threads, made)
    for name in names:
        comparison.invite(name)
    comparison.race(seconds, repeats)
    typer.echo(WRITERS[form](comparison.result(accuracy)))


HEADINGS = ("", "min ms", "median ms", "ratio", "GFLOP/s", "of peak", "error")


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row under `HEADINGS`."""
    if row.refusal:
        return (row.name, *[""] * 5, row.refusal)
    return (
        row.name,
        milliseconds(row.best_ms),
        milliseconds(row.median_ms),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        f"{row.gflops:.1f}",
        "" if row.share_of_peak is None else f"{row.share_of_peak:.0%}",
        "" if row.error is None else f"{row.error:.1e}",
    )


def milliseconds(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.5f}"


def _about(result: Result) -> str:
    threads = "1 thread" if result.threads == 1 else f"{result.threads} threads"
    return (
        f"{result.model}: {result.gflop:.3f} GFLOP, {result.bytes_moved / 1e6:.1f} MB moved by "
        f"our kernels, {threads}; the machine's peak is {result.peak_gflops:.0f} GFLOP/s. "
        "ratio: its time / ours"
    )


def as_table(result: Result) -> str:
    from popgraph.support.tables import table

    first, *rows = [HEADINGS, *map(cells, result.rows)]
    widths = [max(len(row[i]) for row in (first, *rows)) for i in range(1, 6)]
    lines: Sequence[tuple[str, ...]] = [
        (row[0], *(cell.rjust(w) for cell, w in zip(row[1:6], widths, strict=True)), row[6])
        for row in (first, *rows)
    ]
    return f"{_about(result)}\n\n{table(lines)}"


def as_markdown(result: Result) -> str:
    from popgraph.support.tables import markdown_table

    rows = list(map(cells, result.rows))
    return "\n".join([_about(result), "", markdown_table(HEADINGS, rows, " rrrrrr")])


def as_json(result: Result) -> str:
    return json_text(asdict(result))


WRITERS: dict[Format, Callable[[Any], str]] = {
    Format.TABLE: as_table,
    Format.MARKDOWN: as_markdown,
    Format.JSON: as_json,
}
