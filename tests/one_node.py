"""Models of one node, and their results by popgraph and onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

import popgraph
from popgraph.support.arrays import Array
from tests.peer import answers

Arrays = Mapping[str, Array | None]
"""Arrays by input, in the node's order; None is an absent input."""
OPSET = 22
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-11}


def model(
    operator: str,
    inputs: Arrays,
    *,
    outputs: int = 1,
    opset: int = OPSET,
    constants: Sequence[str] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model whose outputs are y, y1, ...; the inputs that `constants` names are initializers."""
    some = {name: array for name, array in inputs.items() if array is not None}
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in some.items()
        if name not in constants
    ]
    held = [numpy_helper.from_array(some[name], name) for name in constants if name in some]
    names = ["y", *(f"y{place}" for place in range(1, outputs))]
    node = helper.make_node(
        operator, [name if name in some else "" for name in inputs], names, **attributes
    )
    made = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "g", infos, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def found(proto: onnx.ModelProto, inputs: Arrays, backend: str = "reference") -> dict[str, Array]:
    given = {info.name: inputs[info.name] for info in proto.graph.input}
    return dict(popgraph.compile(proto, backend=backend)(**given))


def of_both(proto: onnx.ModelProto, inputs: Arrays) -> dict[str, Array]:
    """The results of the reference backend, after checking that C agrees."""
    wanted, by_kernels = (found(proto, inputs, backend) for backend in ("reference", "c"))
    for name, array in wanted.items():
        assert by_kernels[name].dtype == array.dtype
        close(by_kernels[name], array)
    return wanted


def close(one: Array, other: Array) -> None:
    """Compares to the precision of the first array's element type."""
    assert one.shape == other.shape, (one.shape, other.shape)
    margin = TOLERANCE.get(str(one.dtype), 0.0)
    wide = [array.astype(np.float64) if margin else array for array in (one, other)]
    scale = max(1.0, float(np.max(np.abs(wide[1]), initial=0, where=np.isfinite(wide[1]))))
    np.testing.assert_allclose(*wide, rtol=margin, atol=margin * scale if margin else 0)


def of_peer(proto: onnx.ModelProto, inputs: Arrays, folder: Path) -> dict[str, Array]:
    """The results of onnxruntime."""
    given = {info.name: inputs[info.name] for info in proto.graph.input}
    (answer,) = answers([(proto.SerializeToString(), given)], folder)
    assert not isinstance(answer, str), answer
    return answer


def normal(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> Array:
    numbers = np.random.default_rng(seed).normal(size=tuple(shape))
    return np.asarray(numbers.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))))
