"""`popgraph opt`: what does a pass make of this IR?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from popgraph.support.errors import ParseError, PassError


def command(
    file: Annotated[
        Path, typer.Argument(help="IR text of any level; `-` is the standard input.")
    ] = Path("-"),
    passes: Annotated[
        str,
        typer.Option("--passes", "-p", metavar="PASSES", help="Passes, separated by commas."),
    ] = "",
    check: Annotated[
        bool, typer.Option(help="Run the module before and after each pass and compare.")
    ] = False,
) -> None:
    """
    Run passes over IR text.

    \b
    popgraph opt in.mlir -p cse,dce
    popgraph opt in.mlir -p 'tile-loops{vector-bytes=32}'
    popgraph print model.onnx --at graphcore | popgraph opt -p canonicalize --check
    """
    from dataclasses import replace

    from xdsl.passes import PassPipeline
    from xdsl.utils.arg_spec import parse_pipeline
    from xdsl.utils.exceptions import ArgSpecParseError

    from popgraph import compiler
    from popgraph.cli.print import check_pass
    from popgraph.passes.base import Compilation, Pass
    from popgraph.passes.pipeline import factories
    from popgraph.support.debug import Observer, Settings

    try:
        for spec in parse_pipeline(passes):
            check_pass(spec.name)
        pipeline = PassPipeline.parse_spec(dict(factories()), passes)
    except ArgSpecParseError as error:
        raise typer.BadParameter(f"{passes!r}: {error}", param_hint="--passes") from error
    except (ValueError, TypeError) as error:
        raise PassError(
            f"{error}", f"--passes {passes!r}", "`popgraph passes` lists them"
        ) from error

    compilation = Compilation()
    module = compiler.parse_ir(_text(file), compilation, str(file))
    settings = Settings.from_environment()
    observer = Observer(replace(settings, check=check or settings.check), (), compiler.same_meaning)
    for one in pipeline.passes:
        assert isinstance(one, Pass)
        with observer.watching(one, module, compilation.weights):
            one.run(compilation, module)
    typer.echo(str(module))


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError("this is no UTF-8 text", str(file)) from error
