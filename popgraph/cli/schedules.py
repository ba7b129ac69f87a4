"""`popgraph schedules`: how do a model's contractions run, and how else could they?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli.print import Switch, Train, Tuned, Winograd, options_here
from popgraph.support.writing import write_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.passes.base import Compilation
    from popgraph.passes.pipeline import Options
    from popgraph.passes.structured.alternatives import Alternatives


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx, .pgraph or .mlir file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")
    ] = None,
    few: Annotated[int, typer.Option(min=0, help="How many other ways are shown of each.")] = 5,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="N=4", help="The size of a symbolic dimension.")
    ] = None,
    winograd: Winograd = Switch.ON,
    tuned: Tuned = Switch.ON,
    train: Train = False,
) -> None:
    """
    Print how every kind of contraction of a model runs, and the next best ways by estimate.

    \b
    popgraph schedules model.onnx -o schedules.json
    popgraph run model.onnx --random --schedule schedules.json

    `schedule` is the way that is taken. Edit it, for example to one of the `others`, and give the
    file to `run`, `bench`, `profile`, `print`, `emit` or `opt` by --schedule. A row may have
    "op": NAME instead of "contraction": then it is about what this operation of the model becomes.
    Cycles are what the cost model thinks, of one contraction on one thread.
    """
    from popgraph.backends.c.schedule_file import text_of
    from popgraph.cli import models

    if output is not None:
        models.check_place(output, "--output")
    module, compilation, training = models.opened(model, dim, train=train)
    made = replace(options_here(winograd, None, tuned), training=training)
    module = undecided(module, compilation, made)
    text = text_of([row(each, few) for each in alternatives_of(module, made)])
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)


def undecided(module: ModuleOp, compilation: Compilation, options: Options) -> ModuleOp:
    """Lowers a module, in place, as far as nothing is decided about its contractions."""
    from popgraph import compiler
    from popgraph.passes.pipeline import earlier
    from popgraph.passes.structured.winograd.use_winograd import UseWinograd

    if compiler.level_of(module) != "tile":
        names = [step.pass_class.name for step in earlier(UseWinograd)]
        last = [name for name in names if name not in options.disabled][-1]
        compiler.lower(module, compilation, options, until=last)
    return module


def alternatives_of(module: ModuleOp, options: Options) -> list[Alternatives]:
    """The contractions of an undecided module; the first way of each is the one that is taken."""
    from popgraph.dialects.tile.decisions import Decision
    from popgraph.passes.structured.alternatives import alternatives

    machine = options.vector_bytes, options.registers
    found = alternatives(module.clone(), *machine, winograd=options.winograd)
    measured = {one.which: one.way for one in map(Decision.of, options.measured or ())}
    for each in found:
        costs = dict(each.ways)
        way = measured.get(each.text)
        if way in costs:
            each.ways.remove((way, costs[way]))
            each.ways.insert(0, (way, costs[way]))
    return found


def row(found: Alternatives, few: int) -> dict[str, Any]:
    """A contraction in a file of schedules."""
    (way, cycles), *others = found.ways
    return {
        "contraction": found.text,
        "ops": found.names,
        "schedule": str(way),
        "cycles": round(cycles),
        "others": [{"schedule": str(other), "cycles": round(cost)} for other, cost in others[:few]],
    }
