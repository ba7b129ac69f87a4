"""`popgraph run`: runs a model once, and prints or saves its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli import models
from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
    ExtraPasses,
    Folders,
    Indices,
    IndicesChoice,
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
from popgraph.support.errors import ModelError, RunError
from popgraph.support.progress import reporting
from popgraph.support.writing import write_files

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.passes.base import Compilation
    from popgraph.runner import Runner
    from popgraph.support.arrays import Array
    from popgraph.support.description import TensorSpec
    from popgraph.support.shapes import Shape


def backend_name(text: str) -> str:
    """The name of a backend, checked before any file is read."""
    name = text.lower()
    if name != "c":  # which every start knows
        from popgraph.backends.registry import backend_named

        backend_named(name)
    return name


BackendChoice = Annotated[
    str,
    typer.Option(
        parser=backend_name,
        metavar="NAME",
        help="c, reference (NumPy), or a backend of an extension.",
    ),
]


def command(
    model: ModelFile,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="File with an input array."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="NAME=FILE.npy", help="File for an output array."),
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Generate random values for missing inputs.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    dim: Annotated[
        list[str] | None,
        typer.Option(metavar="N=4", help="Size of a symbolic dimension of random inputs."),
    ] = None,
    value: Values = None,
    backend: BackendChoice = "c",
    threads: Threads = 1,
    quick: Annotated[
        bool | None,
        typer.Option(
            "--quick/--no-quick",
            help="Compile programs that are not cached with fewer optimizations, to start sooner. "
            "By default, a terminal shows the outputs of such a program before the tuned one is "
            "compiled for later runs.",
        ),
    ] = None,
    indices: IndicesChoice = None,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Run a model once, and print or save its outputs.

    \b
    popgraph run model.onnx --input x=x.npy
    popgraph run model.onnx -i x=x.npy -o y=y.npy --threads 2
    popgraph run model.pgraph --random --dim N=4 --seed 7
    popgraph run model.onnx --random --backend reference
    popgraph run model.onnx -i x=x.npy --value shape=2,3

    With --quick, a program that is not in the cache is compiled with simple schedules: it compiles
    faster and runs slower. Without the option, outputs on a terminal come from such a program if
    the model is large; then the tuned program is compiled for later runs, unless Ctrl-C ends the
    command. Outputs in files (-o) and in a pipe are those of the tuned program.

    An index out of range is an error; with --random, it is clamped to the nearest valid index.
    .onnx and .pgraph files are data. IR text below the graphcore level (.mlir) is code, with loops
    on plain memory: run only code that you trust.
    """
    keep = models.pairs(outputs or (), "--output")
    for file in keep.values():
        models.check_place(Path(file), "--output")
    files = models.pairs(inputs or (), "--input")
    from popgraph.backends.registry import backend_named
    from popgraph.background import Deferred, backlog_for
    from popgraph.start import compiled, known

    usual = Indices.NEAREST if random else Indices.ERROR
    chosen = options(winograd, schedule, tuned, indices or usual, extra, activations)
    bounds: dict[str, int] = {}
    choice = False if keep else quick  # Files hold the same bits after every run.
    later = backlog_for(choice, is_native=backend_named(backend).is_native)
    backlog = Deferred() if quick else later
    how = (model, threads, backend, chosen, None, backlog, bounds)
    given: dict[str, Array] = {}

    def read(module: ModuleOp, compilation: Compilation) -> None:
        """Reads the arrays of a loaded model; wrong ones are refused before it is compiled."""
        models.check_outputs(module, compilation, keep)
        given.update(models.given(module, files, value or (), complete=not random))

    runner = known(*how)
    if runner is None:
        runner = compiled(*how, read)
    elif files.keys() <= runner.inputs.keys():
        given.update(models.parse_inputs(runner.inputs, files, value or (), complete=not random))
    else:  # Initializers can be given as well.
        read(*models.load(model))
    if random:
        given = {**_made_up(runner, seed, given, models.sizes(dim or ())), **given}
    _show(runner(given), keep)
    if not quick and not runner.tuned:
        with suppress(KeyboardInterrupt), reporting("the tuned program, for later runs"):
            runner.wait()


def _made_up(
    runner: Runner, seed: int, given: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, Array]:
    """Small random arrays for numeric inputs."""
    import numpy as np

    from popgraph.support.arrays import random_array

    specs = runner.inputs
    shapes = _shapes(specs, given, sizes)
    generator = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, spec in specs.items():
        if spec.dtype is not None and name in shapes:
            found[name] = random_array(generator, shapes[name], spec.dtype)
        elif name not in given:
            raise RunError(
                f"input {name!r} is {spec.type}: only numeric tensors can be generated",
                hint="run the model from Python, where inputs of all kinds can be given",
            )
    decisive = () if runner.open is None else runner.open.decided_by({**found, **given})
    for name in decisive:
        if name not in given:
            raise RunError(
                f"input {name!r} decides the structure of the model: it is not generated",
                hint=f"--value {name}=2,3",
            )
    return found


def _shapes(
    specs: Mapping[str, TensorSpec], given: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, Shape]:
    """The shape of each input from given arrays and `sizes`; other dimensions are 1."""
    found = {name: spec.shape for name, spec in specs.items() if spec.shape is not None}
    named = {one for shape in found.values() for one in shape if isinstance(one, str)}
    unknown = sorted(set(sizes) - named)
    if unknown:
        raise ModelError(
            f"the model has no symbolic dimension {unknown[0]!r}",
            hint=f"it has {', '.join(sorted(named)) or 'none'}",
        )
    known = {
        one: size
        for name, array in given.items()
        for one, size in zip(found.get(name, ()), array.shape, strict=False)
        if isinstance(one, str)
    }
    known |= sizes
    shapes = {
        name: [one if isinstance(one, int) else known.get(one or "") for one in shape]
        for name, shape in found.items()
    }
    if any(None in shape for name, shape in shapes.items() if name not in given):
        models.note_ones(named - known.keys())
    return {name: tuple(size or 1 for size in shape) for name, shape in shapes.items()}


def _each_array(results: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays among the outputs; elements of sequences are named `name[index]`."""
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
    from popgraph.support.inputs import check_outputs

    check_outputs(keep, results)
    no_arrays = [name for name in keep if not isinstance(results[name], np.ndarray)]
    if no_arrays:
        raise RunError(
            f"output {no_arrays[0]!r} is not an array", hint="run the model from Python to keep it"
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
