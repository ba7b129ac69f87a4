"""`popgraph export`: writes a model as C with an interface, to be built into other software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import (
    Dimensions,
    ExtraPasses,
    Folders,
    IndicesChoice,
    Load,
    ModelFile,
    ScheduleFile,
    Threads,
    Values,
    options,
)
from popgraph.support.writing import write_files

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.backends.tools import Exported, Exporter, Vector
    from popgraph.passes.base import Compilation
    from popgraph.passes.options import Options
    from popgraph.support.arrays import Array


class Weights(StrEnum):
    """The place of the constants, as the C backend's exporter has it."""

    INCBIN = "incbin"
    ARRAY = "array"
    FILE = "file"


def command(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")],
    name: Annotated[
        str, typer.Option(help="What the names of files and functions begin with.")
    ] = "model",
    target: Annotated[
        str,
        typer.Option(
            help="The machine: native, x86-64-v2, -v3 or -v4, aarch64, armv7e-m, riscv64, wasm32, "
            "or one that an extension brings."
        ),
    ] = "native",
    weights: Annotated[
        Weights,
        typer.Option(
            case_sensitive=False,
            help="Constants: included by the assembler, as C, or in a file that you load.",
        ),
    ] = Weights.INCBIN,
    malloc: Annotated[
        bool,
        typer.Option("--malloc/--no-malloc", help="Whether there is a function that allocates."),
    ] = True,
    train: Annotated[
        bool,
        typer.Option("--train", help="A step of training, as the `train` section of a text says."),
    ] = False,
    dim: Dimensions = None,
    value: Values = None,
    example: Annotated[
        list[str] | None,
        typer.Option(
            "--input", "-i", metavar="NAME=FILE", help="An input of the test vector; else random."
        ),
    ] = None,
    schedule: ScheduleFile = None,
    indices: IndicesChoice = None,
    threads: Threads = 1,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Write a model as C with an interface, to be built into other software.

    \b
    popgraph export model.onnx --dim N=1 -o model_c
    make -C model_c check

    The folder then holds model.h (model_init, model_run, a struct of the inputs and one of the
    outputs, sizes), model.c, the constants, a Makefile and a CMakeLists.txt, and main.c, which runs
    the model on a test vector that the reference backend computed. It is C11 for GCC and Clang,
    needs memcpy, memset and libm, has no globals unless --threads is given, and allocates nothing.
    With --train, model_step is a step of training: it computes the loss and moves the weights,
    which model_save and model_load keep.
    """
    from popgraph import compiler
    from popgraph.backends.registry import DEFAULT, backend_named
    from popgraph.backends.tools import ExportForm
    from popgraph.cli import models

    form = ExportForm(target, name, weights.value, threads, malloc, train)
    exporter = backend_named(DEFAULT).tools.exporter(form)
    module, compilation, training = models.opened(model, dim, value, train=train)
    made = options(schedule=schedule, indices=indices, passes=extra)
    made = replace(made, machine=exporter.machine, training=training)
    if not exporter.is_here:
        made = replace(made, measured=())
    made = compiler.for_this_machine(made, threads)
    given = models.given(module, models.pairs(example or (), "--input"), (), complete=False)
    vector = _vector(module, compilation, made, given, exporter)
    compiler.lower(module, compilation, made)
    found = exporter.export(module, compilation.weights, vector)
    output.mkdir(parents=True, exist_ok=True)
    write_files([(output / file, parts) for file, parts in found.files.items()])
    typer.echo(f"{output}: {', '.join(sorted(found.files))}")
    typer.echo(_needs(found))


def _vector(
    module: ModuleOp,
    compilation: Compilation,
    made: Options,
    given: Mapping[str, Array],
    exporter: Exporter,
) -> Vector:
    """Inputs, as far as they are not given made up, and what the reference makes of them."""
    from popgraph import compiler
    from popgraph.backends.reference.meaning import random_inputs
    from popgraph.backends.tools import Vector
    from popgraph.cli import models

    request = compiler.BuildRequest(module, compilation, made, "reference", 1).copied()
    types = models.signature_of(module)
    executable = request.executable()
    drawn = random_inputs(types)
    if made.training:  # Every loss of classes has the labels 0 and 1.
        drawn = {name: _label(array) for name, array in drawn.items()}
    inputs = executable.fitted({name: {**drawn, **given}[name] for name in executable.inputs})
    for _ in range(exporter.steps):
        outputs = executable.run(inputs)
    return Vector(inputs, outputs)


def _label(array: Array) -> Array:
    return array % 2 if array.dtype.kind in "iu" else array


def _needs(found: Exported) -> str:
    return (
        f"ROM {found.rom:,} bytes of constants (and the code: make size), "
        f"RAM {found.ram:,} bytes beside inputs and outputs"
    )
