"""`popgraph emit`: writes a model as C sources and data files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli.options import (
    Folders,
    IndicesChoice,
    ScheduleFile,
    Switch,
    Threads,
    Tuned,
    Winograd,
    options_here,
)
from popgraph.support.writing import write_files

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.backends.c.memory.table import Slot
    from popgraph.passes.base import Compilation

PROGRAM = "main"


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx, .pgraph or .mlir file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")],
    dim: Annotated[
        list[str] | None, typer.Option(metavar="N=4", help="The size of a symbolic dimension.")
    ] = None,
    winograd: Winograd = Switch.ON,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    indices: IndicesChoice = None,
    threads: Threads = 1,
    folders: Folders = None,
) -> None:
    """
    Write a model as C sources and data, to be built into another program.

    \b
    popgraph emit model.onnx --dim N=1 -o model_c

    The folder then holds program.c (`main_prepare`, `main_run`, `main_stop`), kernels.c, their
    headers, the constants as .bin files, and program.json: what each entry of the table of
    pointers that the first two functions take must point to.
    """
    from popgraph import compiler
    from popgraph.cli import models

    module, compilation, _ = models.opened(model, dim)
    made = options_here(winograd, schedule, tuned, threads, indices)
    compiler.lower(module, compilation, made)
    output.mkdir(parents=True, exist_ok=True)
    described, data = describe(module, compilation)
    texts = c_files(module) | {"program.json": json.dumps(described, indent=2) + "\n"}
    data |= {name: [memoryview(text.encode())] for name, text in texts.items()}
    write_files([(output / name, parts) for name, parts in data.items()])
    files = sorted(path.name for path in output.iterdir())
    typer.echo(f"{output}: {', '.join(files[:8])}{' ...' if len(files) > 8 else ''}")


def c_files(module: ModuleOp) -> dict[str, str]:
    """The C of a module that has gone through all passes."""
    from popgraph.backends.c.print import module as printer
    from popgraph.backends.c.print.layout import Layout, find_program
    from popgraph.backends.c.print.unit import headers, kernel_unit

    program = find_program(module, PROGRAM)
    kernels = printer.print_kernels(module)
    return {
        **headers(),
        "kernels.c": kernel_unit(kernels).text,
        "program.c": printer.program_unit(program, Layout(program), kernels).text,
    }


def describe(
    module: ModuleOp, compilation: Compilation
) -> tuple[dict[str, Any], dict[str, list[memoryview]]]:
    """The table of pointers in words, and the files that constants and variables begin with."""
    from popgraph.backends.c.build.toolchain import FLAGS
    from popgraph.backends.c.machine.targets import TARGETS, wanted_target
    from popgraph.backends.c.print.layout import Layout, find_program
    from popgraph.backends.c.print.program import ENTRIES

    program = find_program(module, PROGRAM)
    slots = Layout(program).slots
    data: dict[str, list[memoryview]] = {}
    _, (spelling, *_) = TARGETS[wanted_target()]
    flags = " ".join(filter(None, (spelling, *FLAGS)))
    described = {
        "build": f"cc {flags} -shared program.c kernels.c -lm -o model.so",
        "functions": [f"{PROGRAM}_{ending}" for ending in ENTRIES],
        "arena": program.arena.value.data,
        "persistent": program.persistent.value.data,
        "checks": [asdict(check) for check in program.index_checks],
        "byte order": "little",
        "memory": [_entry(number, slot, compilation, data) for number, slot in enumerate(slots)],
    }
    return described, data


def _entry(
    number: int, slot: Slot, compilation: Compilation, data: dict[str, list[memoryview]]
) -> dict[str, Any]:
    from popgraph.support.array_bytes import memory_of

    entry: dict[str, Any] = {"space": slot.space}
    if slot.label:
        entry["name"] = slot.label
    if slot.dtype is not None:
        entry |= {"dtype": slot.dtype.name, "shape": list(slot.shape)}
    if slot.literal is not None:
        entry["file"] = f"memory_{number}.bin"
        data[entry["file"]] = [memory_of(slot.literal.array(compilation.weights))]
    return entry
