"""`popgraph.from_torch`: a PyTorch module as an ONNX model with its weights."""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from popgraph.builder.onnx.message import read_message
from popgraph.support.argument_types import check_types
from popgraph.support.errors import RunError, UnsupportedError
from popgraph.support.warnings import PopgraphWarning
from popgraph.torch.capture import exported_program, hold, quiet, reason_of, to_onnx
from popgraph.torch.translations import MODEL


@check_types("module", "dynamic_shapes")
def from_torch(
    module: nn.Module,
    example_inputs: Any,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_shapes: Mapping[str, Mapping[int, str] | Sequence[str | None]] | None = None,
) -> Any:
    """
    A module as an ONNX model, which `compile`, `Trainer` and all other functions take.

    `example_inputs` is a tensor, a tuple of positional arguments or a dict of keyword arguments;
    only types and shapes matter. Inputs have the names of the parameters of `forward`, an only
    output is `y`, several are `y0`, `y1` ... or the keys of a dict. Weights have their names in
    `state_dict`. `dynamic_shapes={"x": {0: "N"}}` leaves a dimension open.

    The mode of the module decides: after `train()`, Dropout drops and BatchNorm2d uses the batch.
    """
    if not isinstance(module, nn.Module):
        raise RunError(
            f"from_torch takes a torch.nn.Module, not {type(module).__name__}",
            hint="popgraph.from_torch(network, torch.randn(1, 3, 32, 32))",
        )
    args, kwargs = _arguments(example_inputs)
    shapes = None if dynamic_shapes is None else _named_axes(dynamic_shapes)
    names = Names(input_names, output_names)
    try:
        return _newer(module, args, kwargs, names, shapes)
    except UnsupportedError as error:
        try:
            model = _older(module, args, kwargs, names, shapes)
        except Exception as other:
            raise UnsupportedError(
                f"{error.what}; the older exporter fails, too: {reason_of(other)}",
                error.where,
                error.hint,
            ) from error
        warnings.warn(
            f"exported by PyTorch's older exporter, because the newer one failed: {error}",
            ExporterWarning,
            stacklevel=2,
        )
        return model


class ExporterWarning(PopgraphWarning):
    """A model was exported by PyTorch's older exporter."""


@dataclass(frozen=True)
class Names:
    """The names of inputs and outputs that the user gives."""

    inputs: Sequence[str] | None
    outputs: Sequence[str] | None

    def of(self, given: Sequence[str] | None, usual: Sequence[str], what: str) -> list[str]:
        """The given names, one for each tensor, or the usual ones."""
        if given is None:
            return list(usual)
        if isinstance(given, str) or len(given) != len(usual):
            raise RunError(
                f"{what}_names has {1 if isinstance(given, str) else len(given)} names, and the "
                f"module {len(usual)} {what}s",
                hint=f"{what}_names={list(usual)}, for example",
            )
        return list(given)


def _arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, Tensor):
        return (given,), {}
    if isinstance(given, list | tuple):
        return tuple(given), {}
    raise RunError(
        f"example_inputs is a tensor, a tuple or a dict, not {type(given).__name__}",
        hint="torch.from_numpy(array) for an array of NumPy",
    )


def _named_axes(given: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """The names of open dimensions by input and axis."""
    found = {}
    for name, dims in given.items():
        pairs = dims.items() if isinstance(dims, Mapping) else enumerate(dims)
        found[name] = {int(axis): dim for axis, dim in pairs if dim is not None}
        if not all(isinstance(dim, str) for dim in found[name].values()):
            raise RunError(
                f"an open dimension has a name, unlike those of {name!r}: {dims}",
                "dynamic_shapes",
                f"dynamic_shapes={{{name!r}: {{0: 'N'}}}}",
            )
    return found


def _newer(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Names,
    shapes: Mapping[str, Mapping[int, str]] | None,
) -> Any:
    """The export by way of `torch.export`."""
    open_dims = _dimensions(module, args, kwargs, shapes)
    if shapes is not None:
        args, kwargs = _widened(module, args, kwargs, shapes)
    exported = exported_program(module, args, kwargs, open_dims)
    program = to_onnx(exported, (), MODEL)
    graph = program.model.graph
    weights = {**exported.state_dict, **exported.constants}
    # The exporter folds weights into other constants: as inputs, they keep their names.
    for name in [one for one in graph.initializers if one in weights]:
        graph.inputs.append(graph.initializers.pop(name))
    program.optimize()
    hold(graph, {name: one for name, one in weights.items() if isinstance(one, Tensor)})
    _rename(graph.inputs, names.of(names.inputs, [one.name for one in graph.inputs], "input"))
    if shapes is not None:
        _name_dimensions(module, args, kwargs, graph, shapes)
    usual = _output_names(exported.call_spec.out_spec, len(graph.outputs))
    _rename(graph.outputs, names.of(names.outputs, usual, "output"))
    taken = {one.name for one in (*graph.inputs, *graph.outputs)}
    for value in (value for node in graph for value in node.outputs):
        if value.name in taken and value not in graph.outputs:
            value.name = f"{value.name}___inner"
    return program.model_proto


def _dimensions(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shapes: Mapping[str, Mapping[int, str]] | None,
) -> Any:
    """`dynamic_shapes` of torch.export: an entry for each argument, `Dim` objects for names."""
    if shapes is None:
        return None
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    unknown = sorted(shapes.keys() - bound.keys())
    if unknown:
        raise RunError(
            f"forward has no argument {unknown[0]!r}",
            "dynamic_shapes",
            f"its arguments are {', '.join(map(repr, bound))}",
        )
    made = {name: torch.export.Dim(name) for dims in shapes.values() for name in dims.values()}
    return {
        name: {axis: made[dim] for axis, dim in shapes[name].items()} if name in shapes else None
        for name in bound
    }


def _widened(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shapes: Mapping[str, Mapping[int, str]],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The examples with at least 2 elements in open dimensions: torch.export fixes a size of 1."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    for name, dims in shapes.items():
        for axis in dims:
            value = bound.arguments[name]
            if isinstance(value, Tensor) and value.shape[axis] == 1:
                bound.arguments[name] = value.repeat_interleave(2, axis)
    return bound.args, bound.kwargs


def _name_dimensions(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    graph: Any,
    shapes: Mapping[str, Mapping[int, str]],
) -> None:
    """Gives open dimensions the user's names; the exporter invents others."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    arguments = [name for name, value in bound.items() if isinstance(value, Tensor)]
    names = {
        str(value.shape[axis]): name
        for argument, value in zip(arguments, graph.inputs, strict=False)
        for axis, name in shapes.get(argument, {}).items()
    }
    values = chain(graph.inputs, (value for node in graph for value in node.outputs))
    for value in values:
        for axis, size in enumerate(value.shape or ()):
            if str(size) in names and not isinstance(size, int):
                value.shape[axis] = names[str(size)]


def _output_names(spec: Any, count: int) -> list[str]:
    """The keys of a dict, `y` for an only output, else `y0`, `y1` ..."""
    if spec is not None and spec.type is dict and len(spec.context) == count:
        return [str(key) for key in spec.context]
    return ["y"] if count == 1 else [f"y{at}" for at in range(count)]


def _rename(values: Iterable[Any], names: Iterable[str]) -> None:
    for value, name in zip(values, names, strict=True):
        value.name = name


def _older(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Names,
    shapes: Mapping[str, Mapping[int, str]] | None,
) -> Any:
    """The export by tracing TorchScript."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    inputs = names.of(names.inputs, list(bound), "input")
    file = io.BytesIO()
    mode = torch.onnx.TrainingMode.TRAINING if module.training else torch.onnx.TrainingMode.EVAL
    with quiet():
        # A trace records one branch of Python, and warns of it.
        warnings.simplefilter("error", torch.jit.TracerWarning)
        torch.onnx.export(
            module,
            args,
            file,
            kwargs=kwargs,
            dynamo=False,
            training=mode,
            do_constant_folding=False,
            input_names=inputs,
            output_names=None if names.outputs is None else list(names.outputs),
            dynamic_axes={
                given: dict(shapes[name])
                for name, given in zip(bound, inputs, strict=True)
                if shapes and name in shapes
            },
        )
    model = read_message(file.getvalue())
    if names.outputs is None:
        old = [one.name for one in model.graph.output]
        _rename_outputs(model.graph, dict(zip(old, _output_names(None, len(old)), strict=True)))
    return model


def _rename_outputs(graph: Any, names: Mapping[str, str]) -> None:
    """Renames outputs of an ONNX graph, and their uses."""
    for one in graph.output:
        one.name = names[one.name]
    for node in graph.node:
        for listed in (node.input, node.output):
            listed[:] = [names.get(name, name) for name in listed]
