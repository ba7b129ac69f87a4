"""`popgraph info`: reports the interface, the parameters and the cost of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
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
    Tuned,
    Values,
    Winograd,
    options_here,
)
from popgraph.support.amounts import bytes_text, counted
from popgraph.support.errors import ModelError
from popgraph.support.figures import csv_text, json_text

if TYPE_CHECKING:
    from popgraph.measure.facts import Facts, Tensor


def command(
    model: ModelFile,
    dim: Dimensions = None,
    value: Values = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure the model on random inputs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print as rows `kind,name,type,number,bytes`.")
    ] = False,
    threads: Threads = 1,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    tuned: Tuned = Switch.ON,
    folders: Folders = None,
) -> None:
    """
    Report the inputs and outputs of a model, its parameters, operators and cost.

    \b
    popgraph info model.onnx
    popgraph info model.onnx --dim N=1 --measure --threads 2
    popgraph info model.onnx --dim N=1 --json

    Multiply-adds are those of the model's contractions, even if our kernels compute fewer; `bench`
    counts two operations for each. They, memory and time are known once all sizes are: --dim sets
    dimensions, --value sets structural inputs. The estimate is a lower bound for one core, from
    arithmetic and memory.
    """
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other", param_hint="--csv")
    from popgraph import compiler
    from popgraph.backends.registry import DEFAULT
    from popgraph.cli import models
    from popgraph.measure.facts import cost_of, facts_of, time_of

    module, compilation, _ = models.opened(model, dim, value, static=False)
    made = options_here(winograd, None, tuned, threads, activations=activations)
    found = facts_of(str(model), module, compiler.description_here(model, module, compilation))
    unknown = ""
    try:
        models.check_structure(module, compilation)
        models.check_static(module)
    except ModelError as error:
        if measure:
            raise
        unknown = f"{error.what}: {error.hint}"
    else:
        request = compiler.BuildRequest(module, compilation, made, DEFAULT, threads)
        found = replace(found, cost=cost_of(request.copy()))
        if measure and found.cost is not None:
            found = replace(found, time=time_of(module, compilation, made, threads, found.cost))
    if as_json:
        typer.echo(json_text(asdict(found)))
    else:
        typer.echo(csv_of(found) if as_csv else text(found, unknown))


def rows(found: Facts) -> Iterator[tuple[str, str, str, object, object]]:
    """Kind, name, type, number and bytes of each known fact."""
    for kind, tensors in _tensors(found):
        for one in tensors:
            yield kind, one.name, one.type, one.elements, one.bytes
    for name, count in found.operators.items():
        yield "operator", name, "", count, None
    for kind, numbers in (("cost", found.cost), ("time", found.time)):
        for name, number in (asdict(numbers) if numbers else {}).items():
            yield kind, name, "", number, None


def _tensors(found: Facts) -> list[tuple[str, list[Tensor]]]:
    kinds = ("input", found.inputs), ("output", found.outputs), ("parameter", found.parameters)
    return list(kinds)


def csv_of(found: Facts) -> str:
    """The rows as CSV with headings, without a final newline."""
    return csv_text([("kind", "name", "type", "number", "bytes"), *rows(found)]).rstrip("\n")


def text(found: Facts, unknown: str = "") -> str:
    """The report as text; `unknown` says why costs are unknown."""
    from popgraph.support.tables import table

    return f"{found.model}\n{table(list(_lines(found, unknown)))}"


def _lines(found: Facts, unknown: str) -> Iterator[tuple[str, str]]:
    opsets = ", ".join(f"{domain or 'ai.onnx'} {n}" for domain, n in found.opsets.items())
    yield "  level", f"{found.level}{f' ({opsets})' if opsets else ''}"
    for kind, tensors in _tensors(found)[:2]:
        for one in tensors:
            yield f"  {kind}", f"{one.name}: {one.type}"
    size = f"{counted(found.parameter_elements, 'number')}, {bytes_text(found.parameter_bytes)}"
    held = counted(len(found.parameters), "tensor")
    yield "  parameters", f"{held}, {size}" if found.parameters else "none"
    listed = ", ".join(f"{name} {count}" for name, count in found.operators.items())
    yield "  operators", f"{sum(found.operators.values())}: {listed}" if listed else "none"
    if found.cost is None:
        yield "  cost", f"not known: {unknown}"
    else:
        yield from _cost_lines(found)


def _cost_lines(found: Facts) -> Iterator[tuple[str, str]]:
    cost, time = found.cost, found.time
    assert cost is not None
    if cost.multiply_adds is not None:
        yield "  multiply-adds", f"{cost.multiply_adds:,}"
    yield "  bytes moved", bytes_text(cost.bytes_moved)
    yield "  weights", f"{bytes_text(cost.weights)} in memory"
    live = bytes_text(cost.largest_live_set)
    yield "  activations", f"{bytes_text(cost.activations)} in memory, {live} at once at most"
    estimate = f"at least {cost.estimated_cycles:,.0f} cycles of a core"
    yield "  estimated", estimate + (f", {time.estimated_ms:.4f} ms" if time else "")
    if time:
        yield "  measured", f"{time.measured_ms:.4f} ms, {counted(time.threads, 'thread')}"
