"""`popgraph.load_weights`: puts the weights of a file into a model, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.source import ModelSource
from popgraph.compiler.loading import Model, load
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx import Initializer, model_of
from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.support.checkpoints import Checkpoint, open_checkpoint
from popgraph.support.errors import ModelError, TypeMismatchError
from popgraph.support.files import state_of
from popgraph.support.ggml_blocks import Blocks
from popgraph.support.names import closest
from popgraph.support.reading import Unreadable
from popgraph.support.shapes import text

Names: TypeAlias = Mapping[str, str] | Callable[[str], str] | None
"""The name in the file for a name of the model; `.T` after it transposes the matrix."""

TRANSPOSED = ".T"
_SHOWN = 5
"""Names of each kind that an error lists."""


@dataclass(frozen=True)
class LoadedModel(ModelSource):
    """A model with weights of a file: `popgraph.compile` and all others take it."""

    read: ModuleOp
    weights: WeightStore
    loaded: tuple[str, ...]
    """The weights of the model that the file has, in the model's order."""
    missing: tuple[str, ...]
    """The weights of the model that the file lacks; they keep their values."""
    unexpected: tuple[str, ...]
    """The names in the file that no weight of the model has."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The name in the file of each loaded weight."""

    def module(self) -> ModuleOp:
        """The model."""
        return self.read.clone()


@check_types()
def load_weights(
    model: Model, weights: Any, *, names: Names = None, strict: bool = True
) -> LoadedModel:
    """
    The model with the weights of a file, by name.

    `weights` is a .safetensors, .gguf or .npz file, the index of a sharded checkpoint, a folder
    with one of these, or a mapping of names to arrays. A name `a/b/w` of the model is also found as
    `a.b.w`. For other names, `names` maps a name of the model to one in the file; `"fc.weight.T"`
    is a transposed matrix. Elements are converted to the model's type.

    If `strict`, each weight of the model must be in the file, and each of the file in the model.
    Otherwise `missing` and `unexpected` of the result list the differences.
    """
    module, compilation = load(model)
    if level_of(module) != ONNX:
        raise ModelError(
            f"a module of the {level_of(module)} level has no weights by name",
            hint="load the weights into the model as it was written",
        )
    held, store = weights_by_name(model_of(module).graph), compilation.weights
    checkpoint, where = _opened(weights, store)
    sources = _sources(held, checkpoint, names, where)
    missing = tuple(name for name in held if name not in sources and _is_float(held[name]))
    used = set(sources.values()) | {one.removesuffix(TRANSPOSED) for one in sources.values()}
    unexpected = tuple(name for name in checkpoint if name not in used)
    if strict and (missing or unexpected):
        raise _difference(missing, unexpected, held, checkpoint, where)
    _put(held, sources, checkpoint, store, where)
    return LoadedModel(module, store, tuple(sources), missing, unexpected, sources)


def _opened(weights: Any, store: WeightStore) -> tuple[Checkpoint, str]:
    """The weights, and what to call them in errors."""
    if isinstance(weights, Mapping):
        readers = {
            str(name): (lambda value=value: np.asarray(value)) for name, value in weights.items()
        }
        return Checkpoint(Path(), readers), "the mapping of weights"
    try:
        path = Path(weights)
        checkpoint = open_checkpoint(path)
        for file in checkpoint.files:
            store.files.setdefault(file.resolve(), state_of(file))
    except TypeError as error:
        raise ModelError(
            f"weights are a file, a folder or a mapping of arrays, not {type(weights).__name__}",
            "load_weights",
        ) from error
    except Unreadable as error:
        raise ModelError(f"the weights cannot be read: {error}", str(path)) from error
    return checkpoint, str(path)


def _sources(
    held: Mapping[str, Initializer], checkpoint: Checkpoint, names: Names, where: str
) -> dict[str, str]:
    """The name in the file of each weight that it has."""
    found: dict[str, str] = {}
    if isinstance(names, Mapping) and (wrong := [name for name in names if name not in held]):
        close = closest(wrong[0], held)
        raise ModelError(
            f"the model has no weight {wrong[0]!r}",
            "names",
            f"did you mean {close!r}?" if close else "the keys are names of the model",
        )
    for name in held:
        wanted = names.get(name, name) if isinstance(names, Mapping) else name
        if callable(names):
            wanted = names(name)
        plain = wanted if wanted in checkpoint else wanted.removesuffix(TRANSPOSED)
        source = checkpoint.find(plain)
        if source is not None:
            found[name] = source + wanted.removeprefix(plain)
        elif isinstance(names, Mapping) and name in names:
            close = checkpoint.closest(plain)
            hint = f"did you mean {close!r}?" if close else ""
            raise ModelError(
                f"the file has no tensor {plain!r}, which `names` gives for {name!r}", where, hint
            )
    return found


def _is_float(initializer: Initializer) -> bool:
    return isinstance(initializer.value, TensorAttr) and describe(
        initializer.result.type
    ).startswith(("f", "bf"))


def _difference(
    missing: tuple[str, ...],
    unexpected: tuple[str, ...],
    held: Iterable[str],
    checkpoint: Checkpoint,
    where: str,
) -> ModelError:
    lines = [
        *_listed("weights of the model that are not in the file", missing, checkpoint.closest),
        *_listed(
            "weights of the file that are not in the model",
            unexpected,
            lambda name: closest(name, held),
        ),
    ]
    return ModelError(
        "the names of the weights differ\n" + "\n".join(lines),
        where,
        "names={...} maps names of the model to names in the file; strict=False loads the "
        "weights that both have",
    )


def _listed(what: str, names: tuple[str, ...], near: Callable[[str], str]) -> list[str]:
    if not names:
        return []
    shown = []
    for name in names[:_SHOWN]:
        close = near(name)
        shown.append(f"    {name!r}" + (f" (similar: {close!r})" if close else ""))
    left = len(names) - len(shown)
    return [f"  {len(names)} {what}:", *shown, *[f"    and {left} more"] * bool(left)]


def _put(
    held: Mapping[str, Initializer],
    sources: Mapping[str, str],
    checkpoint: Checkpoint,
    store: WeightStore,
    where: str,
) -> None:
    """Sets the elements of the weights; a TypeMismatchError lists all of other shapes."""
    wrong = []
    for name, source in sources.items():
        initializer = held[name]
        before = initializer.properties["value"]
        if not isinstance(before, TensorAttr):
            wrong.append(f"{name!r} is sparse")
            continue
        array = _read(checkpoint, source, where)
        shape = before.type.get_shape()
        made = _converted(array, _numpy_type(before), shape)
        if made is None:
            hint = "; transpose it by names" if array.shape[::-1] == shape != array.shape else ""
            wrong.append(
                f"{name!r} is {describe(before.type)}, but {source!r} is "
                f"{array.dtype} of shape {text(array.shape)}{hint}"
            )
            continue
        initializer.properties["value"] = before.with_elements(from_value(made, store).held)
    if wrong:
        left = len(wrong) - _SHOWN
        more = [f"and {left} more"] * (left > 0)
        raise TypeMismatchError(
            "; ".join([*wrong[:_SHOWN], *more]),
            where,
            f'names={{"w": "fc.weight{TRANSPOSED}"}} transposes a matrix',
        )


def _read(checkpoint: Checkpoint, source: str, where: str) -> Array:
    plain = source if source in checkpoint else source.removesuffix(TRANSPOSED)
    try:
        stored = checkpoint.read(plain)
    except Unreadable as error:
        raise ModelError(f"{plain!r} cannot be read: {error}", where) from error
    array = stored.floats() if isinstance(stored, Blocks) else stored
    return array if plain == source else array.T


def _numpy_type(tensor: TensorAttr) -> np.dtype[np.generic]:
    return dtypes.BY_NAME[describe(tensor.type).split("[")[0]].numpy


def _converted(array: Array, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array | None:
    """The array in the type of a weight; None if the shape or the kind of numbers differs."""
    if array.shape != shape:
        return None
    if array.dtype == dtype:
        return array
    try:
        kinds = dtypes.from_numpy(array.dtype), dtypes.from_numpy(dtype)
    except KeyError:
        return None
    return array.astype(dtype) if all(kind.is_float for kind in kinds) else None
