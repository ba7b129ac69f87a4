"""`popgraph print`: what does a model look like at each level?"""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.support.names import closest

if TYPE_CHECKING:
    from popgraph.passes.pipeline import Options


class Level(StrEnum):
    """Where to look."""

    ONNX = "onnx"
    GRAPHCORE = "graphcore"
    TILE = "tile"
    C = "c"


class Switch(StrEnum):
    """Whether something is done."""

    ON = "on"
    OFF = "off"


Winograd = Annotated[
    Switch, typer.Option(help="Whether 3x3 convolutions may be computed by Winograd's transforms.")
]

ScheduleFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="How contractions are to run, see `popgraph schedules`."),
]


class Indices(StrEnum):
    """What an index out of range means that the inputs bring."""

    ERROR = "error"
    NEAREST = "nearest"


IndicesChoice = Annotated[
    Indices | None,
    typer.Option("--indices", help="What an index out of range means that an input brings."),
]
Threads = Annotated[int, typer.Option(min=1, help="How many threads compute.")]

Train = Annotated[
    bool,
    typer.Option("--train", help="A step of training, as the `train` section of the file says."),
]

Tuned = Annotated[
    Switch, typer.Option(help="Whether schedules that `popgraph tune` measured here are used.")
]


def pass_name(name: str, option: str | None = None) -> str:
    """The name of a pass; whoever wrote the command learns it if there is none."""
    from popgraph.passes.pipeline import PASSES

    if name not in PASSES:
        close = closest(name, PASSES)
        hint = f"did you mean {close!r}?" if close else "`popgraph passes` lists them"
        raise typer.BadParameter(f"there is no pass {name!r}; {hint}", param_hint=option)
    return name


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx, .pgraph or .mlir file.")],
    at: Annotated[Level, typer.Option(help="The level to print.")] = Level.ONNX,
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
    winograd: Winograd = Switch.ON,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    indices: IndicesChoice = None,
    threads: Threads = 1,
    train: Train = False,
) -> None:
    """
    Print a model as IR of any level, or as C.

    \b
    popgraph print model.onnx                           as it was written
    popgraph print model.onnx --at graphcore --dim N=4  what is computed
    popgraph print model.onnx --at tile --dim N=4       how: kernels, buffers
    popgraph print model.onnx --at c --dim N=4          the C
    popgraph print model.onnx --stop-after normalize    in the middle
    popgraph print net.pgraph --train --dim N=4 --stop-after autodiff
    """
    from popgraph import compiler
    from popgraph.cli import models
    from popgraph.cli.emit import c_files
    from popgraph.passes.observer import Observer
    from popgraph.support.debug import Settings

    level = "tile" if at == Level.C or stop_after else at.value
    lowered = level != "onnx" or bool(stop_after)
    module, compilation, training = models.opened(model, dim, train=train, static=lowered)
    made = options_here(winograd, schedule, tuned, threads, indices)
    made = replace(made, training=training)
    if lowered:
        observer = Observer(
            Settings.from_environment(), print_after or (), compiler.same_meaning, sys.stdout
        )
        compiler.lower(module, compilation, made, level=level, until=stop_after, observer=observer)
    if at == Level.C and not stop_after:
        typer.echo("\n".join(c_files(module).values()))
    else:
        typer.echo(str(module))


def options(
    winograd: Switch = Switch.ON,
    schedule: Path | None = None,
    tuned: Switch = Switch.ON,
    indices: Indices | None = None,
) -> Options:
    """What the user wants of the passes."""
    from popgraph.backends.c.schedule_file import read
    from popgraph.passes.pipeline import Options

    return Options(
        winograd=winograd == Switch.ON,
        schedules=() if schedule is None else read(schedule),
        measured=None if tuned == Switch.ON else (),
        indices=None if indices is None else indices.value,
    )


def options_here(
    winograd: Switch = Switch.ON,
    schedule: Path | None = None,
    tuned: Switch = Switch.ON,
    threads: int = 1,
    indices: Indices | None = None,
) -> Options:
    """The same, and what passes must know of this machine."""
    from popgraph.compiler import for_this_machine

    return for_this_machine(options(winograd, schedule, tuned, indices), threads)
