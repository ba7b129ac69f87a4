"""`popgraph emit`: which C, and which data, does a model become?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli.print import (
    IndicesChoice,
    ScheduleFile,
    Switch,
    Threads,
    Tuned,
    Winograd,
    options_here,
)

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.backends.c.table import Slot
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
) -> None:
    """
    Write a model as C sources and data, to be built into another program.

    \b
    popgraph emit model.onnx --dim N=1 -o model_c

    The folder then holds program.c (`main_prepare` and `main_run`), kernels.c, their headers,
    the constants as .bin files, and program.json: what each entry of the table of pointers that
    both functions take must point to.
    """
    from popgraph import compiler
    from popgraph.cli import models

    module, compilation, _ = models.opened(model, dim)
    made = options_here(winograd, schedule, tuned, threads, indices)
    compiler.lower(module, compilation, made)
    output.mkdir(parents=True, exist_ok=True)
    for name, text in c_files(module).items():
        (output / name).write_text(text, "utf-8")
    described = describe(module, compilation, output)
    (output / "program.json").write_text(json.dumps(described, indent=2) + "\n")
    files = sorted(path.name for path in output.iterdir())
    typer.echo(f"{output}: {', '.join(files[:8])}{' ...' if len(files) > 8 else ''}")


def c_files(module: ModuleOp) -> dict[str, str]:
    """The C of a module that has gone through all passes."""
    from popgraph.backends.c import module as printer
    from popgraph.backends.c.unit import headers, kernel_unit

    program = printer.find_program(module, PROGRAM)
    kernels = printer.print_kernels(module)
    return {
        **headers(),
        "kernels.c": kernel_unit(kernels).text,
        "program.c": printer.program_unit(program, printer.Layout(program), kernels).text,
    }


def describe(module: ModuleOp, compilation: Compilation, folder: Path) -> dict[str, Any]:
    """The table of pointers in words; writes what constants and variables begin with."""
    from popgraph.backends.c import module as printer
    from popgraph.backends.c.toolchain import FLAGS

    program = printer.find_program(module, PROGRAM)
    slots = printer.Layout(program).slots
    return {
        "build": f"cc {' '.join(FLAGS)} -shared program.c kernels.c -lm -o model.so",
        "functions": [f"{PROGRAM}_prepare", f"{PROGRAM}_run"],
        "arena": program.arena.value.data,
        "persistent": program.persistent.value.data,
        "checks": [asdict(check) for check in program.index_checks],
        "memory": [_entry(number, slot, compilation, folder) for number, slot in enumerate(slots)],
    }


def _entry(number: int, slot: Slot, compilation: Compilation, folder: Path) -> dict[str, Any]:
    entry: dict[str, Any] = {"space": slot.space}
    if slot.label:
        entry["name"] = slot.label
    if slot.dtype is not None:
        entry |= {"dtype": slot.dtype.name, "shape": list(slot.shape)}
    if slot.literal is not None:
        entry["file"] = f"memory_{number}.bin"
        (folder / entry["file"]).write_bytes(slot.literal.array(compilation.weights).tobytes())
    return entry
