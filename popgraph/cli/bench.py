"""`popgraph bench`: times a model beside other runtimes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli.options import Folders, ScheduleFile, Switch, Threads, Tuned, Winograd, options
from popgraph.support.errors import UnsupportedError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.dialects.tile import ProgramOp
    from popgraph.measure.timing import Contestant
    from popgraph.passes.base import Compilation
    from popgraph.passes.options import Options
    from popgraph.support.arrays import Array

OURS, PEAK = "popgraph", "peak"


class Format(StrEnum):
    """How the result is written."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


@dataclass(frozen=True)
class Row:
    """What one runtime took for one run of the model."""

    name: str
    best_ms: float = 0.0
    median_ms: float = 0.0
    ratio: float | None = None
    """Its time divided by ours: above 1, we are faster."""
    gflops: float = 0.0
    """By the sums of products that the model writes down, whatever the runtime saves of them."""
    share_of_peak: float | None = None
    error: float | None = None
    """The largest difference to double precision, relative to the largest output."""
    refusal: str = ""
    """Why it did not run."""


@dataclass(frozen=True)
class Result:
    """A finished comparison."""

    model: str
    threads: int
    gflop: float
    """Of one run."""
    bytes_moved: int
    """What our kernels read and write, each operand and result once."""
    arena: int
    """The bytes of our intermediate values."""
    largest_live_set: int
    """The bytes of them that are needed at once; no arena could be smaller."""
    peak_gflops: float
    rows: list[Row]


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx, .pgraph or .mlir file.")],
    against: Annotated[
        str, typer.Option(metavar="NAMES", help="onnxruntime, openvino, torch: some, with commas.")
    ] = "",
    dim: Annotated[
        list[str] | None, typer.Option(metavar="N=4", help="The size of a symbolic dimension.")
    ] = None,
    threads: Threads = 1,
    seconds: Annotated[float, typer.Option(min=0, help="How long to measure at least.")] = 3.0,
    repeats: Annotated[int, typer.Option(min=1, help="How many rounds at least.")] = 10,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Compare the results with double precision, too.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.TABLE,
    winograd: Winograd = Switch.ON,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    folders: Folders = None,
) -> None:
    """
    Time a model, beside other runtimes in the same process and in turn.

    \b
    popgraph bench model.onnx
    popgraph bench model.onnx --dim N=1 --threads 2 --seconds 10
    popgraph bench model.onnx --against onnxruntime,openvino --accuracy --format markdown

    The process is pinned to as many cores as there are threads. With one thread a time is the
    processor's, else the clock's on the wall. Rates count two operations for each product that the
    model adds up; the peak is a loop of multiply-adds that is timed in the same rounds.
    """
    from popgraph.cli import models
    from popgraph.measure.peers import PEERS
    from popgraph.measure.timing import pin

    names = [name.strip() for name in against.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PEERS]:
        known = ", ".join(PEERS)
        raise typer.BadParameter(f"{unknown[0]!r} is none of {known}", param_hint="--against")
    pin(threads)
    module, compilation, _ = models.opened(model, dim)
    made = options(winograd, schedule, tuned)
    bench = Bench(str(model), module, compilation, threads, made)
    for name in names:
        bench.invite(name)
    bench.race(seconds, repeats)
    typer.echo(WRITERS[form](bench.result(accuracy)))


class Bench:
    """One model, compiled, and everyone it is to be compared with."""

    def __init__(
        self,
        name: str,
        module: ModuleOp,
        compilation: Compilation,
        threads: int,
        options: Options | None = None,
    ) -> None:
        from popgraph import compiler
        from popgraph.backends.reference import signature
        from popgraph.builder.onnx.write import export_model
        from popgraph.dialects import element_types
        from popgraph.dialects.levels import level_of
        from popgraph.measure.peak import peak
        from popgraph.measure.timing import Contestant, random_model_inputs
        from popgraph.passes.options import Options

        self._name, self._threads = name, threads
        self._options = compiler.for_this_machine(options or Options(), threads)
        self._module, self._compilation = module, compilation
        self._proto: Any = None
        self._run: Callable[[Mapping[str, Array]], dict[str, Array]]
        if level_of(module) == "onnx":
            self._proto = export_model(module, compilation.weights)
            self._run = compiler.compile(self._proto, threads=threads, options=self._options)
        else:
            self._run = compiler.build(
                module.clone(), compilation, self._options, threads=threads
            ).run
        self._inputs = random_model_inputs(
            {
                name: (element_types.from_ir(type_.element_type), type_.get_shape())
                for name, type_ in signature(module).items()
            }
        )
        self._outputs: dict[str, Callable[[], Mapping[str, Array]]] = {OURS: self.ours}
        self._refusals: dict[str, str] = {}
        call, self._peak_work = peak(threads)
        self._contestants = [Contestant(PEAK, call), Contestant(OURS, self.ours)]

    def ours(self) -> dict[str, Array]:
        """What a user would call."""
        return self._run(self._inputs)

    def invite(self, name: str) -> None:
        """Adds a peer; what it refuses is kept for the table."""
        from popgraph.measure.peers import PEERS, ready
        from popgraph.measure.timing import Contestant

        if self._proto is None:
            raise UnsupportedError("peers read ONNX only", self._name, "leave out --against")
        known = PEERS[name]
        try:
            run = ready(known, self._proto, self._inputs, self._threads)
            run()
        except UnsupportedError as error:
            self._refusals[name] = error.what
            return
        self._outputs[name] = run
        self._contestants.append(Contestant(name, run, many=known.many))

    def race(self, seconds: float, rounds: int) -> None:
        from popgraph.measure.timing import race

        race(self._contestants, threads=self._threads, seconds=seconds, rounds=rounds)

    def result(self, accuracy: bool) -> Result:
        from popgraph.dialects.tile.program.lifetimes import bytes_touched, calls

        flops, program = self._lowered()
        peak, *others = self._contestants
        fastest = self._peak_work / peak.best / 1e9
        errors = self._errors() if accuracy else {}
        ours = others[0].best
        rows = [_row(each, flops, fastest, ours, errors.get(each.name)) for each in others]
        rows += [Row(name, refusal=why) for name, why in self._refusals.items()]
        return Result(
            model=self._name,
            threads=self._threads,
            gflop=flops / 1e9,
            bytes_moved=sum(
                bytes_touched([value.owner for value in op.arguments]) for op in calls(program)
            ),
            arena=program.arena.value.data,
            largest_live_set=program.lower_bound.value.data,
            peak_gflops=fastest,
            rows=rows,
        )

    def _lowered(self) -> tuple[int, ProgramOp]:
        """Floating-point operations as the model has them, and the program that it becomes."""
        from popgraph import compiler
        from popgraph.backends.c.print.layout import find_program
        from popgraph.dialects.levels import level_of
        from popgraph.dialects.tile.program.work import contraction_flops
        from popgraph.passes.graphcore.to_structured import GraphcoreToStructured

        module = self._module.clone()
        if level_of(module) in ("onnx", "graphcore"):
            compiler.lower(
                module, self._compilation, self._options, until=GraphcoreToStructured.name
            )
        flops = contraction_flops(module)
        compiler.lower(module, self._compilation, self._options)
        return flops, find_program(module, "main")

    def _errors(self) -> dict[str, float]:
        from popgraph.measure.accuracy import error, exact

        expected = exact(self._module, self._compilation, self._inputs)
        return {name: error(run(), expected) for name, run in self._outputs.items()}


def _row(each: Contestant, flops: int, peak: float, ours: float, error: float | None) -> Row:
    rate = flops / each.best / 1e9
    return Row(
        name=each.name,
        best_ms=each.best * 1e3,
        median_ms=each.median * 1e3,
        ratio=None if each.name == OURS else each.best / ours,
        gflops=rate,
        share_of_peak=rate / peak,
        error=error,
    )


HEADINGS = ("", "min ms", "median ms", "ratio", "GFLOP/s", "of peak", "error")


def cells(row: Row) -> tuple[str, ...]:
    """A row under `HEADINGS`."""
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
    from popgraph.cli.report import table

    first, *rows = [HEADINGS, *map(cells, result.rows)]
    widths = [max(len(row[i]) for row in (first, *rows)) for i in range(1, 6)]
    lines: Sequence[tuple[str, ...]] = [
        (row[0], *(cell.rjust(w) for cell, w in zip(row[1:6], widths, strict=True)), row[6])
        for row in (first, *rows)
    ]
    return f"{_about(result)}\n\n{table(lines)}"


def as_markdown(result: Result) -> str:
    rows = [HEADINGS, ("---", *["---:"] * 6), *map(cells, result.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([_about(result), "", *lines])


def as_json(result: Result) -> str:
    return json.dumps(asdict(result), indent=1)


WRITERS: dict[Format, Callable[[Any], str]] = {
    Format.TABLE: as_table,
    Format.MARKDOWN: as_markdown,
    Format.JSON: as_json,
}
