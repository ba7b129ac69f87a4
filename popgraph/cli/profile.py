"""`popgraph profile`: where does a step of a model spend its time, and its memory?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.print import ScheduleFile, Switch, Threads, Train, Tuned, Winograd, options
from popgraph.support.writing import write_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Attribute

    from popgraph.backends.c.profile import Profile as Measured
    from popgraph.passes.base import Compilation
    from popgraph.passes.pipeline import Options

ROUNDS = 20
COLUMNS = ("us", "share", "GFLOP/s", "GB/s", "kernel", "from")


@dataclass(frozen=True)
class Call:
    """What one call of a kernel takes, in the order of the program."""

    kernel: str
    source: str
    """Where the user wrote it."""
    microseconds: float
    share: float
    """Of the sum of all calls."""
    flops: int
    moved: int
    """The bytes of all its operands and results."""
    in_use: int
    """The bytes of the arena that hold something while it runs."""

    def rate(self, amount: int) -> float:
        """So many things in this time, in thousand millions a second."""
        return amount / self.microseconds / 1e3 if self.microseconds else 0.0


@dataclass(frozen=True)
class Report:
    """A profile, ready to be shown."""

    model: str
    threads: int
    microseconds: float
    """The whole program at once."""
    arena: int
    largest_live_set: int
    """No arena could be smaller."""
    persistent: int
    calls: list[Call]

    def longest(self) -> list[Call]:
        return sorted(self.calls, key=lambda call: -call.microseconds)


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx, .pgraph or .mlir file.")],
    dim: Annotated[
        list[str] | None, typer.Option(metavar="N=4", help="The size of a symbolic dimension.")
    ] = None,
    threads: Threads = 1,
    rounds: Annotated[int, typer.Option(min=1, help="How often it runs; minima count.")] = ROUNDS,
    rows: Annotated[int, typer.Option(min=1, help="How many calls the table shows.")] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Keep all numbers.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Keep a page with pictures.")
    ] = None,
    winograd: Winograd = Switch.ON,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    train: Train = False,
) -> None:
    """
    Show which kernels a model spends its time in, and how much memory is in use when.

    \b
    popgraph profile model.onnx
    popgraph profile model.onnx --dim N=1 --threads 2 --rows 50
    popgraph profile model.onnx --json profile.json --html profile.html
    popgraph profile net.pgraph --train --dim N=32

    Every call of a kernel is timed alone, in its order and on the memory that the call before it
    left. Times are the fastest of all rounds: of the thread's own clock for one thread, of the
    wall's for more.
    """
    from popgraph.cli import models
    from popgraph.cli.timing import pin

    for file, option in ((json_file, "--json"), (html_file, "--html")):
        if file is not None:
            models.check_place(file, option)
    pin(threads)
    module, compilation, training = models.opened(model, dim, train=train)
    made = replace(options(winograd, schedule, tuned), training=training)
    found = report(str(model), module, compilation, threads, rounds, made)
    typer.echo(text(found, rows))
    if json_file is not None:
        write_text(json_file, json.dumps(asdict(found), indent=1) + "\n")
    if html_file is not None:
        from popgraph.cli.profile_page import page

        write_text(html_file, page(found))


def report(
    name: str,
    module: ModuleOp,
    compilation: Compilation,
    threads: int,
    rounds: int,
    options: Options | None = None,
) -> Report:
    """Compiles the module in place, or a step that trains it, and measures it on random inputs."""
    from popgraph import compiler
    from popgraph.backends.c.profile import Profile
    from popgraph.cli.timing import made_up
    from popgraph.passes.pipeline import Options

    wanted = compiler.for_this_machine(options or Options(), threads)
    compiler.lower(module, compilation, wanted)
    measured = Profile(module, compilation.weights, threads)
    measured.measure(made_up(measured.executable.inputs), rounds)
    return _described(name, module, measured, threads)


def _described(name: str, module: ModuleOp, measured: Measured, threads: int) -> Report:
    from popgraph.backends.c.module import find_program
    from popgraph.dialects.tile.lifetimes import bytes_in_use, bytes_touched
    from popgraph.dialects.tile.work import Counter

    program, counter = find_program(module, "main"), Counter(module)
    whole = sum(measured.times) or 1
    in_use = bytes_in_use(program, counter)
    calls = [
        Call(
            kernel=call.callee.string_value(),
            source=source(call.location),
            microseconds=time / 1e3,
            share=time / whole,
            flops=counter.call(call).flops,
            moved=bytes_touched([argument.owner for argument in call.arguments]),
            in_use=used,
        )
        for call, time, used in zip(measured.calls, measured.times, in_use, strict=True)
    ]
    return Report(
        model=name,
        threads=threads,
        microseconds=measured.total / 1e3,
        arena=program.arena.value.data,
        largest_live_set=max(in_use, default=0),
        persistent=program.persistent.value.data,
        calls=calls,
    )


def source(location: Attribute | None) -> str:
    """The user's name for an operation, and the line where it was written."""
    from xdsl.dialects.builtin import FileLineColLoc, NameLoc

    match location:
        case NameLoc():
            return f"{location.desc.data}  {source(location.location)}".strip()
        case FileLineColLoc():
            return f"{Path(location.filename.data).name}:{location.line.data}"
    return ""


def text(found: Report, rows: int) -> str:
    """The longest calls, then the memory, for a terminal."""
    from popgraph.cli.report import table

    shown = found.longest()[:rows]
    lines = [COLUMNS, *map(cells, shown)]
    narrow = [tuple(cell.rjust(8) for cell in line[:4]) + line[4:] for line in lines]
    rest = len(found.calls) - len(shown)
    return "\n".join(
        [
            f"{found.model}: {summary(found)}",
            "",
            table(narrow),
            *([f"... and {rest} more calls"] if rest else []),
            "",
            memory_summary(found),
        ]
    )


def cells(call: Call) -> tuple[str, ...]:
    """A row under `COLUMNS`."""
    return (
        f"{call.microseconds:.1f}",
        f"{call.share:.1%}",
        f"{call.rate(call.flops):.1f}",
        f"{call.rate(call.moved):.1f}",
        call.kernel,
        call.source,
    )


def summary(found: Report) -> str:
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    return (
        f"{found.microseconds:.1f} us a step, {len(found.calls)} calls, "
        f"{sum(call.flops for call in found.calls) / 1e9:.3f} GFLOP, {threads}"
    )


def memory_summary(found: Report) -> str:
    return (
        f"arena {megabytes(found.arena)}, of which {megabytes(found.largest_live_set)} are in use "
        f"at once at most; prepared weights {megabytes(found.persistent)}"
    )


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 10_000 else f"{count} B"
