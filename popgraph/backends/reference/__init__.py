"""
The reference backend: interprets any level with NumPy, slowly, and checks every access.

Its modules are imported on first use, since compilation only requires the types of inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute

from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array

__all__ = ["can_evaluate", "evaluate", "first_state", "output_types", "signature"]


def evaluate(
    module: ModuleOp,
    inputs: Mapping[str, Array],
    weights: WeightStore,
    state: Mapping[str, Array] | None = None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """
    Runs one step of a module of any level; returns the outputs, and the updated variables.

    Without `state`, variables start with the initial values in the module.
    """
    if is_onnx(module):
        from popgraph.backends.reference.onnx_level import run_onnx

        return run_onnx(module, inputs, weights), {}
    from popgraph.backends.reference.executable import run

    return run(module, inputs, weights, state)


def first_state(module: ModuleOp, weights: WeightStore) -> dict[str, Array]:
    """The variables before the first step; modules of the onnx level have none."""
    if is_onnx(module):
        return {}
    from popgraph.backends.reference.executable import runnable

    return runnable(module, weights).state()


def can_evaluate(module: ModuleOp) -> bool:
    """Whether `evaluate` supports every operator; ai.graphcore's only run at graphcore level."""
    if not is_onnx(module):
        return True
    from popgraph.backends.reference.onnx_level import knows

    return knows(module)


def signature(module: ModuleOp) -> dict[str, TensorType[Attribute]]:
    """The type of every input of a module."""
    if is_onnx(module):
        from popgraph.dialects.onnx.containers import input_types as onnx_input_types

        found = onnx_input_types(module)
        return {name: type_ for name, type_ in found.items() if isinstance(type_, TensorType)}
    from popgraph.backends.reference.executable import input_types

    return input_types(module)


def output_types(module: ModuleOp, weights: WeightStore) -> list[tuple[str, TensorType[Attribute]]]:
    """The declared types of outputs; at onnx level, of both the graph and its values."""
    if is_onnx(module):
        from popgraph.dialects.onnx.containers import model_of

        graph = model_of(module).graph
        said = [info.type for info in graph.outputs], [value.type for value in graph.yielded]
        return [
            (name, type_)
            for types in said
            for name, type_ in zip(graph.output_names, types, strict=True)
            if isinstance(type_, TensorType)
        ]
    from popgraph.backends.reference.executable import runnable

    return list(runnable(module, weights).outputs.items())


def is_onnx(module: ModuleOp) -> bool:
    """Whether the module is of the onnx level, without importing that dialect (slow)."""
    return any(op.name.startswith("onnx.") for op in module.ops)
