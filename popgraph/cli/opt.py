"""`popgraph opt`: runs passes on IR text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zlib import crc32

import typer

from popgraph.cli.options import Folders, Load, ScheduleFile, pass_name
from popgraph.support.errors import ModelError, ParseError
from popgraph.support.texts import read_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from popgraph.dialects.program import WeightStore
    from popgraph.passes.base import Pass


def command(
    file: Annotated[
        Path, typer.Argument(help="IR text of any level; `-` for the standard input.")
    ] = Path("-"),
    passes: Annotated[
        str,
        typer.Option("--passes", "-p", metavar="PASSES", help="Comma-separated passes."),
    ] = "",
    check: Annotated[
        bool,
        typer.Option(help="Run the module before and after each pass, and compare the results."),
    ] = False,
    schedule: ScheduleFile = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Run passes over IR text.

    \b
    popgraph opt in.mlir -p cse,dce
    popgraph opt in.mlir -p 'structured-to-loops{vector-bytes=32}'
    popgraph print model.onnx --at graphcore | popgraph opt -p canonicalize --check
    popgraph opt in.mlir --load my_passes.py -p my-pass --check
    popgraph opt popgraph-1a2b3c.mlir      a reproducer: its first line names the passes

    IR text below the graphcore level is code: --check runs its loops on plain memory. Run only code
    that you trust.
    """
    from popgraph import compiler
    from popgraph.passes.base import Compilation
    from popgraph.passes.observer import Observer
    from popgraph.passes.pipeline import check_needs
    from popgraph.passes.reproducer import passes_in
    from popgraph.support.debug import Settings

    if file.suffix in (".onnx", ".pgraph"):
        raise ModelError(
            "this is a model, not IR text",
            str(file),
            f"popgraph print {file} | popgraph opt",
        )
    text = _text(file)
    steps = _scheduled(_pipeline(passes or passes_in(text)), schedule)
    compilation = Compilation()
    module = compiler.parse_ir(text, compilation, str(file))
    settings = Settings.from_environment()
    observer = Observer(replace(settings, check=check or settings.check), (), _same_meaning)
    for step in steps:
        check_needs(step, module)
        with observer.watching(step, module, compilation.weights):
            step.run(compilation, module)
    typer.echo(str(module))


def _pipeline(passes: str) -> list[Pass]:
    """Parses a pipeline of passes with options; BadParameter if it is not valid."""
    from xdsl.passes import PassPipeline
    from xdsl.utils.arg_spec import parse_pipeline
    from xdsl.utils.exceptions import ArgSpecParseError

    from popgraph.passes.base import Pass
    from popgraph.passes.pipeline import factories

    try:
        for spec in parse_pipeline(passes):
            pass_name(spec.name, "--passes")
        pipeline = PassPipeline.parse_spec(dict(factories()), passes)
    except ArgSpecParseError as error:
        raise typer.BadParameter(f"{passes!r}: {error}", param_hint="--passes") from error
    except (ValueError, TypeError) as error:
        spelled = str(error).replace("_", "-")  # as the text wants it, not Python
        raise typer.BadParameter(f"{passes!r}: {spelled}", param_hint="--passes") from error
    steps = [step for step in pipeline.passes if isinstance(step, Pass)]
    assert len(steps) == len(pipeline.passes)
    return steps


def _scheduled(steps: Sequence[Pass], schedule: Path | None) -> list[Pass]:
    """Adds the schedules of a file to the passes that schedule contractions."""
    from popgraph.dialects.tile.structured.schedule_file import read_schedules
    from popgraph.passes.structured.schedule.schedule_contractions import ScheduleContractions
    from popgraph.passes.structured.winograd.use_winograd import UseWinograd

    schedules = () if schedule is None else read_schedules(schedule)
    return [
        replace(step, schedules=(*step.schedules, *schedules))
        if isinstance(step, UseWinograd | ScheduleContractions)
        else step
        for step in steps
    ]


def _same_meaning(step: Pass, before: ModuleOp, after: ModuleOp, weights: WeightStore) -> None:
    """
    Checks equivalence with random elements for large tensors that IR text only names.

    The comparison is valid for any elements; a pass that needs the actual ones reports it.
    """
    import numpy as np

    from popgraph import compiler
    from popgraph.dialects import element_types
    from popgraph.dialects.program import BlobAttr, WeightStore
    from popgraph.support.arrays import random_array

    store = WeightStore()
    for module in (before, after):
        for op in module.walk():
            literal = op.properties.get("literal")
            if not isinstance(literal, BlobAttr):
                continue
            key = literal.key.text
            shape = literal.type.get_shape()
            dtype = element_types.from_ir(literal.type.element_type).numpy
            if key in weights:
                store.defer(key, shape, dtype, weights.array(literal))
            else:
                generator = np.random.default_rng(crc32(key.encode()))
                store.defer(key, shape, dtype, random_array(generator, shape, dtype))
    compiler.same_meaning(step, before, after, store)


def _text(file: Path) -> str:
    if str(file) != "-":
        return read_text(file)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ParseError("not UTF-8 text", str(file)) from error
