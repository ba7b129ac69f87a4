"""`popgraph emit`: writes a model as C sources and data files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
    ExtraPasses,
    Folders,
    IndicesChoice,
    Load,
    ModelFile,
    Ranges,
    ScheduleFile,
    Switch,
    Threads,
    Tuned,
    Values,
    Winograd,
    options_here,
)
from popgraph.support.writing import write_files


def command(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output folder.")],
    dim: Ranges = None,
    value: Values = None,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    indices: IndicesChoice = None,
    threads: Threads = 1,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Write a model as C sources and data, to be built into another program.

    \b
    popgraph emit model.onnx --dim N=1 -o model_c

    The folder then holds program.c (`main_prepare`, `main_run`, `main_stop`), kernels.c, their
    headers, and the constants as .bin files. The first two functions take a table of pointers;
    main.h (for C) and program.json (for other readers) describe each entry, and how to compile the
    sources. `popgraph export` writes C with an interface of named arrays.
    """
    from popgraph import compiler
    from popgraph.backends.registry import DEFAULT, backend_named
    from popgraph.cli import models

    module, compilation, _ = models.opened(model, dim, value, ranged=True)
    made = options_here(winograd, schedule, tuned, threads, indices, extra, activations)
    request = compiler.BuildRequest(module, compilation, made, DEFAULT, threads)
    models.lower_to_sizes(request, model, dim, value)
    output.mkdir(parents=True, exist_ok=True)
    tools = backend_named(DEFAULT).tools
    files = tools.emit(module, compilation.weights, threads=threads)
    write_files([(output / name, parts) for name, parts in files.items()])
    names = sorted(path.name for path in output.iterdir())
    typer.echo(f"{output}: {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}")
