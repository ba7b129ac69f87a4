"""Saves a model of the onnx level as an .onnx or .pgraph file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import WeightFile, text_of
from popgraph.passes.base import Compilation
from popgraph.support.errors import WriteError
from popgraph.support.safetensors import safetensors
from popgraph.support.writing import Chunks, write_file, write_pair, write_text


def _save_onnx(path: Path, module: ModuleOp, compilation: Compilation) -> str:
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
