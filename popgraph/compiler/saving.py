"""Saves a model of the onnx level as an .onnx or .pgraph file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder import architectures
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import WeightFile, text_of
from popgraph.dialects.element_types import from_ir, is_number
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.passes.base import Compilation
from popgraph.support.errors import WriteError
from popgraph.support.safetensors import safetensors
from popgraph.support.shapes import prod
from popgraph.support.writing import Chunks, write_file, write_pair, write_text

MOST_BYTES = (1 << 31) - 1
"""The size of the largest protobuf message."""


def _save_onnx(path: Path, module: ModuleOp, compilation: Compilation) -> str:
    size = sum(
        prod(one.held.type.get_shape()) * from_ir(one.held.type.element_type).bits // 8
        for initializer in model_of(module).graph.all_initializers
        if isinstance(one := initializer.value, TensorAttr) and is_number(one.type.element_type)
    )
    if size > MOST_BYTES:
        raise WriteError(
            f"the weights have {size / 2**30:.1f} GiB, and an ONNX file holds less than 2",
            str(path),
            "a .pgraph file keeps its weights beside it, and holds any number of them",
        )
    write_file(path, [export_model(module, compilation.weights).SerializeToString()])
    return ""


def _save_pgraph(path: Path, module: ModuleOp, compilation: Compilation) -> str:
    """Writes the text; large weights go into a .safetensors file with the same stem."""
    weights_path = path.with_suffix(".safetensors")
    file = WeightFile(weights_path.name)
    text = text_of(module, compilation.weights, file)
    if not file.arrays:
        write_text(path, text)
        return ""

    def naming(name: str) -> Chunks:
        return [text_of(module, compilation.weights, WeightFile(name)).encode()]

    write_pair(path, naming, weights_path, lambda: safetensors(file.arrays))
    return f"{len(file.arrays)} large weights are in {weights_path}"


def save_language_model(path: Path, model: architectures.LanguageModel) -> str:
    """
    Writes the text of a language model; returns a note for the user, or "".

    It loads a weight file in its folder or below. Other files are copied beside it: blocks as they
    are, and shards into one .safetensors file.
    """
    checkpoint, folder = model.checkpoint, path.parent.resolve()
    held = checkpoint.path.resolve()
    if held.is_relative_to(folder) and not checkpoint.is_renamed:
        write_text(
            path, architectures.model_text(model.configuration, held.relative_to(folder).as_posix())
        )
        return ""
    copy = path.with_suffix(".gguf" if checkpoint.gguf else ".safetensors")
    if copy.resolve() in {file.resolve() for file in checkpoint.files}:
        copy = copy.with_stem(f"{copy.stem}-decoder")

    def naming(name: str) -> Chunks:
        return [architectures.model_text(model.configuration, name).encode()]

    def chunks() -> Chunks:
        if checkpoint.gguf is not None:
            return [checkpoint.gguf.mapped.data]
        arrays = {name: checkpoint.read(name) for name in checkpoint}
        return safetensors({k: v for k, v in arrays.items() if isinstance(v, np.ndarray)})

    write_pair(path, naming, copy, chunks)
    return f"the weights are in {copy}"


SAVERS: dict[str, Callable[[Path, ModuleOp, Compilation], str]] = {
    ".onnx": _save_onnx,
    ".pgraph": _save_pgraph,
}


def check_kind(path: Path) -> None:
    """WriteError unless the extension of a file names a known format."""
    if path.suffix not in SAVERS:
        raise WriteError(f"models are saved as {' or '.join(SAVERS)}", str(path), "net.onnx")


def save_model(path: Path, module: ModuleOp, compilation: Compilation) -> str:
    """Writes a model of the onnx level; returns a note for the user, or ""."""
    check_kind(path)
    return SAVERS[path.suffix](path, module, compilation)
