"""`popgraph convert`: converts a model between .onnx, .pgraph and .mlir."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import Dimensions, Folders, ModelFile


def command(
    source: ModelFile,
    target: Annotated[Path, typer.Argument(help="Output file; its suffix selects the format.")],
    dim: Dimensions = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output", metavar="NAME", help="Keep only this value and its ancestors (repeatable)."
        ),
    ] = None,
    folders: Folders = None,
) -> None:
    """
    Convert a model between .onnx, .pgraph and .mlir.

    \b
    popgraph convert model.onnx model.pgraph   large weights go to model.safetensors
    popgraph convert model.pgraph model.onnx   gives an equivalent model
    popgraph convert net.onnx one.onnx --dim N=1          a batch of known size
    popgraph convert net.onnx trunk.onnx --output features   everything up to a value
    """
    from popgraph.cli import models

    module, compilation, _ = models.opened(source, dim, static=False)
    if output:
        models.cut(module, output)
    models.save(target, module, compilation)
