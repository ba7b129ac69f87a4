"""The backend interface of the onnx package: `prepare`, `run_model` and `run_node`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict
from onnx.defs import get_schema, onnx_opset_version

from popgraph.backends.base import ComputedBy
from popgraph.compiler import admits
from popgraph.passes.options import Options
from popgraph.runner import Runner
from popgraph.start import compile
from popgraph.support.errors import PopgraphError, RunError

Inputs: TypeAlias = Sequence[Any] | Mapping[str, Any] | Any
"""Arrays in the order of the model's inputs, by name, or a single one."""


class PreparedModel(BackendRep):
    """A compiled model: `run(inputs)` returns a named tuple of its outputs."""

    def __init__(self, model: ModelProto, runner: Runner) -> None:
        self._runner = runner
        self._inputs = _wanted_inputs(model)
        names = [info.name for info in model.graph.output]
        self._names, self._outputs = names, namedtupledict("Outputs", names)

    def run(self, inputs: Inputs, **_: Any) -> tuple[Any, ...]:
        """Runs the model. Inputs with an initializer cannot be given: they are constants."""
        found = self._runner(self._named(inputs))
        outputs: tuple[Any, ...] = self._outputs(*(found[name] for name in self._names))
        return outputs

    @property
    def computed_by(self) -> ComputedBy:
        """C or Python, for the runs so far."""
        return self._runner.computed_by

    def _named(self, inputs: Inputs) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(inputs)
        given = inputs if isinstance(inputs, list | tuple) else [inputs]
        if len(given) != len(self._inputs):
            raise RunError(
                f"{len(given)} inputs are given, the model has {len(self._inputs)}",
                hint=f"in this order: {', '.join(map(repr, self._inputs)) or 'none'}",
            )
        return dict(zip(self._inputs, map(_as_given, given), strict=True))


def _wanted_inputs(model: ModelProto) -> list[str]:
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    return [info.name for info in graph.input if info.name not in known]


def _as_given(value: Any) -> Any:
    """Converts a TensorProto, which ONNX's tests may pass, to an array."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


class CBackend(Backend):
    """Runs models as C. `ReferenceBackend` runs them in NumPy."""

    NAME: ClassVar[str] = "c"

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Supports `CPU`, with or without a number: `CPU:0`."""
        return device.split(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Whether the model can be compiled, as far as can be determined without inputs."""
        return cls.supports_device(device) and admits(model)

    @classmethod
    def prepare(
        cls,
        model: ModelProto,
        device: str = "CPU",
        *,
        threads: int = 1,
        options: Options | None = None,
        **_: Any,
    ) -> PreparedModel:
        """
        Compiles the model.

        Unknown keywords are ignored: ONNX's tests pass their tolerances to every backend.
        """
        if not cls.supports_device(device):
            raise PopgraphError(f"there is no device {device!r}", hint="PopGraph computes on 'CPU'")
        runner = compile(model, backend=cls.NAME, threads=threads, options=options, quick=False)
        return PreparedModel(model, runner)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Inputs, device: str = "CPU", **keywords: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **keywords).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Inputs,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        *,
        opset_version: int | None = None,
        **keywords: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node; without `outputs_info`, their types are inferred."""
        given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        arrays = [np.asarray(_as_given(value)) for value in given]
        model = _model_of(node, arrays, outputs_info or (), opset_version)
        return cls.run_model(model, arrays, device, **keywords)


def _model_of(
    node: NodeProto,
    arrays: Sequence[np.ndarray[Any, Any]],
    outputs_info: Sequence[tuple[Any, tuple[int, ...]]],
    version: int | None,
) -> ModelProto:
    """A model with a single node; an input that the node reads twice is one input of the model."""
    names = list(dict.fromkeys(filter(None, node.input)))
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(names, arrays, strict=True)
    ]
    types = [
        helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for dtype, shape in outputs_info
    ]
    outputs = list(filter(None, node.output))
    types += [TypeProto()] * (len(outputs) - len(types))
    infos = [
        helper.make_value_info(name, type_) for name, type_ in zip(outputs, types, strict=True)
    ]
    graph = helper.make_graph([node], node.op_type or "node", inputs, infos)
    versions = {"": version or onnx_opset_version()}
    if node.domain:
        versions[node.domain] = get_schema(node.op_type, domain=node.domain).since_version
    opsets = [helper.make_opsetid(domain, number) for domain, number in versions.items()]
    return helper.make_model(graph, opset_imports=opsets)


class ReferenceBackend(CBackend):
    """Runs models in NumPy, without a C compiler: slow, but a reference."""

    NAME: ClassVar[str] = "reference"


is_compatible = CBackend.is_compatible
prepare = CBackend.prepare
run_model = CBackend.run_model
run_node = CBackend.run_node
supports_device = CBackend.supports_device
