"""Loads a model of any format as a module and its weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder import architectures, pgraph
from popgraph.builder.onnx.external import DataFolders
from popgraph.builder.onnx.read import import_model
from popgraph.builder.source import ModelSource
from popgraph.dialects.levels import level_of
from popgraph.dialects.text import parse
from popgraph.passes.base import Compilation
from popgraph.support.argument_types import check_types
from popgraph.support.errors import PassError
from popgraph.support.files import is_language_model, path_of
from popgraph.support.texts import read_text

Model: TypeAlias = Any
"""
A path (.onnx, .pgraph, .mlir, .gguf, or a folder with config.json and weights), a `.pgraph` text,
ONNX bytes, a ModelProto, a Builder or an IR module.
"""


def load(
    model: Model,
    *,
    mapped: bool = False,
    search: Iterable[str] = (),
    folders: DataFolders | None = None,
) -> tuple[ModuleOp, Compilation]:
    """
    Loads a model as a module of its own level, with its weights.

    `search` are folders for the imports of a `.pgraph` text. `folders` are further folders for the
    external data of an ONNX model. If `mapped`, weights may be memory-mapped from the model's file,
    and must be used before anyone writes to it.
    """
    compilation = Compilation()
    match model:
        case ModuleOp():
            return model.clone(), compilation
        case ModelSource():
            return model.module(), Compilation(model.weights)
        case str() if path_of(model) is None:
            document = pgraph.parse(model, search=search)
            return document.module, Compilation(document.weights)
        case str() | Path() if Path(model).suffix == ".pgraph":
            document = pgraph.load(Path(model), search)
            return document.module, Compilation(document.weights)
        case str() | Path() if Path(model).suffix == ".mlir":
            return parse_ir(read_text(Path(model)), compilation, str(model)), compilation
        case str() | Path() if is_language_model(Path(model)):
            opened = architectures.open_language_model(model)
            return opened.module(), Compilation(opened.weights)
        case _:
            return import_model(
                model, compilation.weights, mapped=mapped, folders=folders
            ), compilation


@check_types()
def to_pgraph(model: Model, *, whole: bool = True) -> pgraph.Listing:
    """
    Converts any model to `.pgraph` text; a notebook shows it in colours.

    Unless it is `whole`, large weights are only named, so that the text stays readable.
    """
    module, compilation = load(model)
    if level_of(module) != "onnx":
        raise PassError(
            f"a module of the {level_of(module)} level has no .pgraph text",
            hint="only models as they were written have one",
        )
    return pgraph.Listing.of(module, compilation.weights, whole=whole)


def parse_ir(text: str, compilation: Compilation, name: str = "<text>") -> ModuleOp:
    """Parses and verifies IR text of any level."""
    return parse(compilation, text, name)
