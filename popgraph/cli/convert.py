"""`popgraph convert`: converts a model between .onnx, .pgraph and .mlir, and language models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import Dimensions, Folders, ModelFile
from popgraph.cli.report import note
from popgraph.support.files import is_language_model


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
    Convert a model between .onnx, .pgraph and .mlir, or a language model to one of them.

    A language model is a .gguf file, or a folder of Hugging Face with config.json and .safetensors.

    \b
    popgraph convert model.onnx model.pgraph   large weights go to model.safetensors
    popgraph convert model.pgraph model.onnx   gives an equivalent model
    popgraph convert SmolLM2-135M/ smollm.pgraph   the text, and smollm.safetensors
    popgraph convert qwen.gguf qwen.pgraph         the text; it loads qwen.gguf
    popgraph convert net.onnx one.onnx --dim N=1          a batch of known size
    popgraph convert net.onnx trunk.onnx --output features   everything up to a value
    """
    from popgraph.cli import models

    if is_language_model(source) and target.suffix == ".pgraph" and not (dim or output):
        from popgraph.builder.architectures import open_language_model
        from popgraph.compiler.saving import save_language_model

        if told := save_language_model(target, open_language_model(source)):
            note(told)
        return
    module, compilation, _ = models.opened(source, dim, static=False)
    if output:
        models.cut(module, output)
    models.save(target, module, compilation)
