"""Nodes of onnxruntime's operators, and their results in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import popgraph
from popgraph.dialects.onnx.functions import definition_of
from popgraph.operators.record import MICROSOFT
from popgraph.support.arrays import Array

ORT = pytest.importorskip("onnxruntime", reason="onnxruntime is what is compared with")
RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def draw_ints(limit: int, *shape: int, dtype: Any = np.int32) -> Array:
    return RANDOM.integers(0, limit, shape).astype(dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int32)


@dataclass
class Sample:
    """A node: inputs (None if absent), outputs and attributes."""

    op: str
    inputs: Sequence[Array | None]
    outputs: Sequence[str] = ("y",)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    slots: int | None = None
    """The slots of a cache that are used; the others hold arbitrary values."""

    in_place: Mapping[str, str] = field(default_factory=dict)
    """Outputs that onnxruntime writes over an input: name of the output to name of the input."""

    @property
    def domain(self) -> str:
        return MICROSOFT if definition_of("", self.op) is None else ""

    @property
    def names(self) -> list[str]:
        return ["" if one is None else f"i{at}" for at, one in enumerate(self.inputs)]

    @property
    def given(self) -> dict[str, Array]:
        pairs = zip(self.names, self.inputs, strict=True)
        return {name: array for name, array in pairs if array is not None}

    def model(self, results: Sequence[Array] = ()) -> onnx.ModelProto:
        """
        A model of the node; `results` give the output types where onnxruntime cannot infer them.
        """
        node = helper.make_node(
            self.op, self.names, self.outputs, domain=self.domain, **self.attributes
        )
        infos = [info(name, array) for name, array in self.given.items()]
        wanted = [name for name in self.outputs if name]
        outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
        if results:
            outputs = [info(name, array) for name, array in zip(wanted, results, strict=True)]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        graph = helper.make_graph([node], "one", infos, outputs)
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def computed(self, backend: str = "c") -> list[Array]:
        found = popgraph.compile(self.model(), backend=backend)(self.given)
        return [found[name] for name in self.outputs if name]


def info(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def peer(sample: Sample) -> list[Array]:
    options = ORT.SessionOptions()
    options.log_severity_level = 4
    # With several threads, onnxruntime quantizes each thread's slice of a batch separately.
    options.intra_op_num_threads = 1
    session = ORT.InferenceSession(sample.model().SerializeToString(), options)
    if sample.in_place:
        return _in_place(session, sample)
    found: list[Array] = session.run(None, sample.given)
    return found


def _in_place(session: Any, sample: Sample) -> list[Array]:
    binding = session.io_binding()
    values = {name: ORT.OrtValue.ortvalue_from_numpy(one) for name, one in sample.given.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name in sample.outputs:
        if name in sample.in_place:
            binding.bind_ortvalue_output(name, values[sample.in_place[name]])
        else:
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    found: list[Array] = binding.copy_outputs_to_cpu()
    return found
