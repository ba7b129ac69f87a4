"""Tests PopART's scatterreduce and its gradients against PyTorch, on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import popgraph
import popgraph.popart as popart
from popgraph.backends.reference import evaluate
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.options import GRADIENT
from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError
from tests.passes.test_onnx_gradients import MIXTURE, forward

BACKENDS = ("reference", "c")
REDUCTIONS = ("Sum", "Max", "Min", "Mul", "NoReduction")
OF_TORCH = {"Sum": "sum", "Max": "amax", "Min": "amin", "Mul": "prod"}
TYPES = {"float32": "FLOAT", "float16": "FLOAT16", "int32": "INT32", "uint32": "UINT32"}


def built(
    arrays: Sequence[Array], reduction: str, grouped: int = 1, **named: Any
) -> tuple[popart.Builder, str]:
    """A model of one scatterreduce, and the name of its output."""
    builder = popart.Builder()
    ids = [builder.addInputTensor(TYPES[str(one.dtype)], list(one.shape)) for one in arrays]
    named["reduction"] = getattr(popart.ScatterReduction, reduction)
    if grouped > 1:
        result = builder.aiGraphcore.groupedscatterreduce(ids, group_size=grouped, **named)
    else:
        result = builder.aiGraphcore.scatterreduce(ids, **named)
    builder.addOutputTensor(result)
    return builder, result


def inputs_of(builder: popart.Builder) -> list[str]:
    made = onnx.ModelProto.FromString(builder.getModelProto())
    return [info.name for info in made.graph.input]


def run(arrays: Sequence[Array], reduction: str, backend: str, **named: Any) -> Array:
    builder, result = built(arrays, reduction, **named)
    runner = popgraph.compile(builder.getModelProto(), backend=backend)
    given = dict(zip(inputs_of(builder), arrays, strict=True))
    (found,) = runner(given).values()
    assert list(found.shape) == builder.getTensorShape(result)
    return found


def by_torch(
    data: torch.Tensor,
    index: Array,
    axis: int,
    size: int,
    reduction: str,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    places = torch.tensor(index.astype(np.int64))
    shape = list(index.shape)
    shape[axis] = size
    start = torch.zeros(shape, dtype=data.dtype)
    if initial is None and reduction == "Mul":
        start = start + 1
    start = start if initial is None else initial
    if reduction == "NoReduction":
        return start.scatter(axis, places, data)
    return start.scatter_reduce(
        axis, places, data, OF_TORCH[reduction], include_self=initial is not None
    )


def drawn(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return generator.integers(-9, 9, shape).astype(dtype)
    return generator.normal(size=shape).astype(dtype)


def places(shape: Sequence[int], size: int) -> Array:
    return np.random.default_rng(3).integers(0, size, shape).astype(np.uint32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", REDUCTIONS[:4])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_scatter_reduce(reduction: str, dtype: str, backend: str) -> None:
    data = drawn((4, 5, 3), dtype)
    for axis, with_initial in ((0, False), (1, True), (-1, False)):
        index = places(data.shape, 6)
        shape = list(data.shape)
        shape[axis] = 6
        more = [drawn(shape, dtype, 1)] if with_initial else []
        found = run([data, index, *more], reduction, backend, axis=axis, axis_size=6)
        initial = torch.tensor(more[0]) if more else None
        wanted = by_torch(torch.tensor(data), index, axis, 6, reduction, initial)
        margin = 2e-2 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(found, wanted.numpy(), margin, margin)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_reduce_with_an_index_per_slice(reduction: str, backend: str) -> None:
    """
    A vector along the axis, with or without axes of size 1; in groups one index per data element.
    """
    data = drawn((2, 4, 3))
    index = np.array([2, 0, 5, 0], np.uint32)
    whole = np.broadcast_to(index[None, :, None], data.shape)
    wanted = by_torch(torch.tensor(data), whole, 1, 6, reduction).numpy()
    last = reduction == "NoReduction"
    if last:
        wanted[:, 0] = data[:, 3]
    for given in (index, index.reshape(1, 4, 1), index.reshape(1, 4)):
        found = run([data, given], reduction, backend, axis=1, axis_size=6)
        np.testing.assert_allclose(found, wanted, 1e-6)
    both = np.stack([index, index[::-1]])
    found = run([data, both], reduction, backend, grouped=2, axis=1, axis_size=6)
    for group in range(2):
        alone = run([data[group], both[group]], reduction, backend, axis=0, axis_size=6)
        np.testing.assert_array_equal(found[group], alone)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", REDUCTIONS[:4])
def test_scatter_reduce_without_index_broadcast(reduction: str, backend: str) -> None:
    """Only elements with an index take part; initial values may have more elements."""
    data, index, initial = drawn((4, 5)), places((3, 2), 6), drawn((7, 6), seed=1)
    options = {"axis": 0, "axis_size": 6, "enable_index_broadcast": 0}
    found = run([data, index], reduction, backend, **options)
    wanted = by_torch(torch.tensor(data), index, 0, 6, reduction)
    np.testing.assert_allclose(found, wanted.numpy(), 1e-6)
    found = run([data, index, initial], reduction, backend, **options)
    wanted = by_torch(torch.tensor(data), index, 0, 6, reduction, torch.tensor(initial))
    np.testing.assert_allclose(found, wanted.numpy(), 1e-6)


@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_reduce_gradients_are_those_of_pytorch(reduction: str, with_initial: bool) -> None:
    data, index = drawn((4, 3)), np.array([[2, 1, 0], [1, 0, 1], [0, 2, 2], [3, 3, 3]], np.uint32)
    arrays = [data, index, *([drawn((5, 3), seed=1)] if with_initial else [])]
    tensors = [torch.tensor(one, requires_grad=True) for one in (arrays[0], *arrays[2:])]
    builder, result = built(arrays, reduction, axis=0, axis_size=5)
    loss = builder.aiOnnx.reducesum([builder.aiOnnx.exp([result])], keepdims=0)
    identity = builder.aiOnnx.identity([loss], MIXTURE)
    builder.addOutputTensor(identity)
    made = onnx.ModelProto.FromString(builder.getModelProto())
    names = inputs_of(builder)
    floats = [names[0], *names[2:]]
    last = made.graph.node[-1].output[0]
    module, compilation = forward(made, floats)
    Autodiff(last, wrt=tuple(floats)).run(compilation, module)
    found, _ = evaluate(module, dict(zip(names, arrays, strict=True)), compilation.weights)
    of_torch = by_torch(tensors[0], index, 0, 5, reduction, *tensors[1:])
    of_torch.exp().sum().backward()  # type: ignore[no-untyped-call]
    for name, tensor in zip(floats, tensors, strict=True):
        wanted = tensor.grad.numpy().copy()
        # There, PyTorch gives every source the gradient of the last one.
        if reduction == "NoReduction":
            wanted = np.where(found[GRADIENT + name] == 0, 0, wanted)
        np.testing.assert_allclose(found[GRADIENT + name], wanted, 1e-5)


def test_scatter_reduce_indices_out_of_range() -> None:
    data, index = drawn((4, 3)), np.array([0, 1, 2, 5], np.uint32)
    made, _ = built([data, index], "Sum", axis=0, axis_size=5)
    run = popgraph.compile(made.getModelProto(), indices="error")
    with pytest.raises(IndicesError, match="index 5 is out of range: 0 to 4"):
        run(dict(zip(inputs_of(made), [data, index], strict=True)))
