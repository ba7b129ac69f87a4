"""Changes to a model before it is compiled, and its metadata. Imports the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.onnx.write import export_model
from popgraph.builder.source import ModelSource
from popgraph.compiler import load
from popgraph.compiler.sizes import specialise, symbols
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.dialects.onnx.containers import Model, input_types, model_of
from popgraph.dialects.onnx.metadata import graph_metadata, model_metadata, value_metadata
from popgraph.dialects.onnx.types import dims
from popgraph.dialects.program import WeightStore
from popgraph.ort.errors import InvalidArgument
from popgraph.ort.logs import note
from popgraph.ort.values import ModelMetadata, OrtValue
from popgraph.passes.base import Compilation
from popgraph.support.names import closest
from popgraph.support.writing import write_file


class Prepared(ModelSource):
    """A loaded model with the changes that session options request."""

    def __init__(self, module: ModuleOp, weights: WeightStore) -> None:
        self._module, self.weights = module, weights

    def module(self) -> ModuleOp:
        """A copy, which the compiler may modify."""
        return self._module.clone()


def prepared(
    model: str | Path | bytes,
    by_name: Mapping[str, int],
    by_denotation: Mapping[str, int],
    initializers: Mapping[str, OrtValue],
) -> Prepared:
    """Loads a model, sets sizes of dimensions and replaces initializers."""
    module, compilation = load(model)
    if initializers:
        _replace(module, compilation, initializers)
    sizes = _named_sizes(module, by_name, by_denotation)
    if sizes:
        specialise(module, compilation, sizes)
    return Prepared(module, compilation.weights)


def _replace(
    module: ModuleOp, compilation: Compilation, initializers: Mapping[str, OrtValue]
) -> None:
    found = {one.value_name.text: one for one in model_of(module).graph.initializers}
    for name, value in initializers.items():
        if name not in found or not isinstance(found[name].value, TensorAttr):
            close = closest(name, found)
            raise InvalidArgument(
                f"the model has no initializer {name!r}",
                hint=f"did you mean {close!r}?" if close else f"it has {', '.join(found)}",
            )
        old = found[name].value
        assert isinstance(old, TensorAttr), "checked above"
        new = old.with_elements(compilation.weights.attribute(value.numpy()))
        if new.type != old.type:
            raise InvalidArgument(
                f"initializer {name!r} is {old.type}, the new one {new.type}",
                hint="give an array of the same type and shape",
            )
        found[name].properties["value"] = new


def _named_sizes(
    module: ModuleOp, by_name: Mapping[str, int], by_denotation: Mapping[str, int]
) -> dict[str, int]:
    """The sizes of symbolic dimensions by name; a note names overrides that match none."""
    types = input_types(module)
    known = symbols(types.values())
    sizes = {name: size for name, size in by_name.items() if name in known}
    ignored = [name for name in by_name if name not in known]
    denoted = _denotations(module)
    for denotation, size in by_denotation.items():
        places = [place for place, text in denoted.items() if text == denotation]
        names = [(dims(types[name]) or ())[axis] for name, axis in places]
        sizes |= {name: size for name in names if isinstance(name, str)}
        if not any(isinstance(name, str) for name in names):
            ignored.append(denotation)
    for name in ignored:
        note(f"a size is given for {name!r}, but no input has a symbolic dimension of that name")
    return sizes


def _denotations(module: ModuleOp) -> dict[tuple[str, int], str]:
    """The denotations of dimensions, by input and axis."""
    found = dict[tuple[str, int], str]()
    for info in model_of(module).graph.inputs:
        if info.exact.data:
            _, texts = value_metadata(info)
            found |= {(info.text, axis): text for axis, text in enumerate(texts[1:]) if text}
    return found


def save(model: Prepared, path: str) -> None:
    """Writes a model as ONNX."""
    content = export_model(model.module(), model.weights).SerializeToString()
    write_file(path, [content])


def metadata(model: Any) -> ModelMetadata:
    """The metadata of a model; empty for IR below the onnx level."""
    module, _ = load(model, mapped=True)
    if level_of(module) != ONNX:
        return ModelMetadata()
    found: Model = model_of(module)
    about = model_metadata(found)
    made = ModelMetadata(
        producer_name="" if found.producer is None else found.producer.text,
        graph_name=found.graph.graph_name.text,
        domain="" if found.model_domain is None else found.model_domain.text,
        description=about.doc or ("" if found.doc is None else found.doc.text),
        graph_description=graph_metadata(found.graph).doc,
        custom_metadata_map={}
        if found.metadata is None
        else {str(key): str(value) for key, value in found.metadata.entries},
    )
    if found.model_version is None:
        return made
    return ModelMetadata(**{**vars(made), "version": found.model_version.value.data})
