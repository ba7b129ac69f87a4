"""`popgraph convert`: converts a model between .onnx, .pgraph and .mlir."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import Folders, ModelFile


def command(
    source: ModelFile,
    target: Annotated[Path, typer.Argument(help="The file to write; its ending says the format.")],
    folders: Folders = None,
) -> None:
    """
    Convert a model between .onnx, .pgraph and .mlir.

    \b
    popgraph convert model.onnx model.pgraph   large weights go to model.safetensors
    popgraph convert model.pgraph model.onnx   gives a model that says the same
    """
    from popgraph.cli import models

    module, compilation = models.load(source)
    models.save(target, module, compilation)
