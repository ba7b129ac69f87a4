"""Specialises symbolic dimensions and input values of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.types import dims, substituted, tensor_type
from popgraph.dialects.program.sizes import set_sizes
from popgraph.passes.base import Compilation
from popgraph.passes.onnx import infer_shapes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import from_numpy
from popgraph.support.errors import ModelError
from popgraph.support.sizes import Size, SizedAxis


def specialise(
    module: ModuleOp,
    compilation: Compilation,
    given: Mapping[str, int],
    bounds: Mapping[str, int] = MappingProxyType({}),
    values: Mapping[str, Array] | None = None,
) -> None:
    """
    Sets the sizes of symbolic dimensions and the `values` of inputs.

    Dimensions in `bounds` stay open, up to their bounds.
    """
    if not given and not values and not bounds:
        return
    if level_of(module) != ONNX:
        raise ModelError(
            f"all dimensions of a module of the {level_of(module)} level are known",
            hint="--dim and --value are for models with something to decide; leave them out",
        )
    types = input_types(module)
    found = [
        Size(f"size {name}" if name in types else name, bound, tuple(_axes(types, name)))
        for name, bound in sorted(bounds.items())
    ]
    unknown = sorted({*given, *bounds} - symbols(types.values()))
    if unknown:
        listed = ", ".join(sorted(symbols(types.values()))) or "none"
        raise ModelError(
            f"the model has no symbolic dimension {unknown[0]!r}", hint=f"it has {listed}"
        )
    wanted = {name: substituted(type_, {**given, **bounds}) for name, type_ in types.items()}
    wanted |= {
        name: tensor_type(from_numpy(array.dtype), array.shape)
        for name, array in (values or {}).items()
    }
    infer_shapes.specialise(module, wanted, compilation.weights, values)
    if found:
        set_sizes(module, found)


def _axes(types: Mapping[str, Attribute], dimension: str) -> Iterator[SizedAxis]:
    """The axes of inputs with a symbolic dimension."""
    for name, type_ in types.items():
        for axis, dim in enumerate(dims(type_) or ()):
            if dim == dimension:
                yield SizedAxis(name, axis)


def symbols(types: Iterable[Attribute]) -> set[str]:
    """The names of symbolic dimensions in these types."""
    return {dim for type_ in types for dim in dims(type_) or () if isinstance(dim, str)}
