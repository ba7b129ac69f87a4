"""`popgraph run`: runs a model once, and prints or saves its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli.options import (
    ExtraPasses,
    Folders,
    Indices,
    IndicesChoice,
    Load,
    ScheduleFile,
    Switch,
    Threads,
    Tuned,
    Values,
    Winograd,
    options,
)
from popgraph.support.errors import RunError
from popgraph.support.writing import write_files

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.support.arrays import Array


class Backend(StrEnum):
    """What runs the model."""

    C = "c"
    REFERENCE = "reference"


BackendChoice = Annotated[
    Backend, typer.Option(case_sensitive=False, help="C, or NumPy for every operation.")
]


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx, .pgraph or .mlir file.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="The array of an input."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="NAME=FILE.npy", help="Where to keep an output."),
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Make up the inputs that are not given.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Which random inputs.")] = 0,
    dim: Annotated[
        list[str] | None,
        typer.Option(metavar="N=4", help="The size of a symbolic dimension of random inputs."),
    ] = None,
    value: Values = None,
    backend: BackendChoice = Backend.C,
    threads: Threads = 1,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Compile less, for a sooner answer, what the cache does not have.",
        ),
    ] = False,
    indices: IndicesChoice = None,
    winograd: Winograd = Switch.ON,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Run a model once and show, or keep, what it gives.

    \b
    popgraph run model.onnx --input x=x.npy
    popgraph run model.onnx -i x=x.npy -o y=y.npy --threads 2
    popgraph run model.pgraph --random --dim N=4 --seed 7
    popgraph run model.onnx --random --backend reference
    popgraph run model.onnx -i x=x.npy --value shape=2,3

    With --quick, a program that the cache does not have gets plain schedules: it is compiled
    sooner, runs longer and is not kept.

    An index out of range is an error, but for --random, where it is the nearest that is in range.

    .onnx and .pgraph files are data. IR text below the graphcore level (.mlir) is code,
    loops on plain memory: run only what you trust.
    """
    from popgraph import compiler
    from popgraph.background import Deferred
    from popgraph.cli import models
    from popgraph.compiler.sizes import specialise

    keep = models.pairs(outputs or (), "--output")
    for file in keep.values():
        models.check_place(Path(file), "--output")
    files = models.pairs(inputs or (), "--input")
    module, compilation = models.load(model)
    models.check_outputs(module, compilation, keep)
    hosted = models.is_hosted(module)
    interface = compiler.interface_of(module, compilation.weights)
    given = models.given(module, files, value or (), complete=not random)
    if random:
        known = models.sizes_of(module, given)
        specialise(module, compilation, known | models.sizes(dim or ()))
        unknown = [name for name in models.structural(module, compilation) if name not in given]
        if unknown:
            raise RunError(
                f"input {unknown[0]!r} decides the structure of the model: it is not made up",
                hint=f"--value {unknown[0]}=2,3",
            )
        models.assume_ones(module, compilation)
        given = {**_made_up(module, seed, given), **given}
    usual = Indices.NEAREST if random else Indices.ERROR
    made = options(winograd, schedule, tuned, indices or usual, extra)
    request = compiler.BuildRequest(
        module,
        compilation,
        made,
        backend.value,
        threads,
        backlog=Deferred() if quick else None,
    )
    runner = request.runner()
    results = runner(given)
    if interface is not None and not hosted:
        call, read = interface.call(given), compilation.weights.files
        compiler.note_program(model, read, call, runner.program(given), threads)
    _show(results, keep)


def _made_up(module: ModuleOp, seed: int, given: Mapping[str, Array]) -> Mapping[str, Array]:
    """Small random arrays for inputs of numbers."""
    from xdsl.dialects.builtin import TensorType

    from popgraph.backends.reference import signature
    from popgraph.backends.reference.meaning import random_inputs
    from popgraph.dialects.element_types import is_number
    from popgraph.dialects.onnx.types import describe, tensor_type

    types = {}
    for name, type_ in signature(module).items():
        if isinstance(type_, TensorType) and is_number(type_.element_type):
            shape = [1 if size < 0 else size for size in type_.get_shape()]
            types[name] = tensor_type(type_.element_type, shape)
        elif name not in given:
            raise RunError(
                f"input {name!r} is {describe(type_)}: only tensors of numbers are made up",
                hint="run the model from Python, where inputs of all kinds can be given",
            )
    return random_inputs(types, seed)  # type: ignore[arg-type]


def _each_array(results: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays in what a model gives, those of sequences by their place."""
    for name, value in results.items():
        if isinstance(value, list):
            yield from _each_array({f"{name}[{at}]": one for at, one in enumerate(value)})
        elif value is None:
            typer.echo(f"{name}: nothing")
        else:
            yield name, value


def _show(results: Mapping[str, Array], keep: Mapping[str, str]) -> None:
    import numpy as np

    from popgraph.support.array_bytes import npy
    from popgraph.support.given import check_outputs

    check_outputs(keep, results)
    no_arrays = [name for name in keep if not isinstance(results[name], np.ndarray)]
    if no_arrays:
        raise RunError(
            f"output {no_arrays[0]!r} is no array", hint="run the model from Python to keep it"
        )
    write_files([(Path(file), npy(results[name])) for name, file in keep.items()])
    for name, array in _each_array(results):
        if keep and name not in keep:
            continue
        shape = ", ".join(map(str, array.shape))
        where = f" -> {keep[name]}" if name in keep else ""
        typer.echo(f"{name}: {array.dtype}[{shape}]{where}")
        if not keep:
            typer.echo(np.array2string(array, threshold=200, precision=6))
