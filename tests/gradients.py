"""Compares gradients of one node with central differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference import evaluate, first_state
from popgraph.builder.onnx.read import import_model
from popgraph.dialects.onnx import OnnxOp, model_of
from popgraph.dialects.onnx.record import record_of
from popgraph.operators.record import STRUCTURE, structural_operands
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.onnx.infer_shapes import InferShapes
from popgraph.passes.onnx.normalize import Normalize
from popgraph.passes.onnx.partition import BOUNDED
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import CONSTANT, GRADIENT, VARIABLE
from popgraph.support.arrays import Array
from popgraph.support.memo import cached_property

LOSS = "mixture_of_results"
FLOATS = (TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)
PRECISIONS = ("stash_type", "softmax_precision", "to", "dtype", "output_dtype")
"""Attributes that name the type of intermediate computations."""
INNER = {"RMSNormalization": "stash_type"}
"""The attribute whose default is f32."""
SINGLE_PARTS = {
    "LayerNormalization", "RotaryEmbedding", "GroupQueryAttention", "DequantizeLinear",
    "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention",
    "GatherBlockQuantized", "QEmbedLayerNormalization", "NormalizeImage", "MRotaryEmbedding",
    "SparseAttention",
}  # fmt: skip
"""Operators that compute in f32 or have f32 results; so does ai.onnx.ml."""
SETTINGS = {"Dropout": (1,)}
"""Float inputs that are settings: the mask of Dropout does not depend on the ratio."""
STATISTICS = {"BatchNormalization": (3, 4)}
"""Inputs that are running statistics if they are weights, and so have no gradient."""


RESIZINGS = ("Resize", "Upsample")


class Slope(StrEnum):
    """The result of comparing a gradient with central differences, for a node and an input."""

    YES = "yes"
    ZERO = "zero"
    KINK = "no slope at the point that was tried"


class WrongGradientError(AssertionError):
    """A gradient that differs from the slope."""


@dataclass(frozen=True)
class Precision:
    """The type, step and error bounds of central differences."""

    dtype: type[np.floating[Any]]
    step: float
    tolerance: float
    smallest: float
    """The absolute error of slopes from rounding of a loss near 1."""

    @property
    def onnx(self) -> int:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)))

    def margin(self, slopes: tuple[float, float], loss: float) -> float:
        return self.tolerance * max(map(abs, slopes)) + self.smallest * max(1, abs(loss))


DOUBLE = Precision(np.float64, 1e-6, 1e-4, 1e-6)
SINGLE = Precision(np.float32, 1e-2, 4e-2, 2e-3)


@dataclass(frozen=True)
class Sample:
    """A model of one node, and its inputs."""

    name: str
    model: onnx.ModelProto
    arrays: Mapping[str, Any]

    @property
    def operator(self) -> str:
        """The operator's name in `docs/ops.md`."""
        return title(self.model.graph.node[0])

    @cached_property
    def wide(self) -> Wide:
        """The sample in a precision that is sufficient for differences."""
        return Wide.of(self)


@dataclass(frozen=True)
class Wide:
    """A model of one node with a loss in one precision, whose structural inputs are constants."""

    model: onnx.ModelProto
    arrays: Mapping[str, Array]
    """The float inputs that do not decide a structure."""
    precision: Precision
    has_loss: bool

    @classmethod
    def of(cls, sample: Sample) -> Wide:
        model, arrays = copied(sample.model), dict[str, Array]()
        with_onnx(model)
        precision = precision_of(model)
        widen(model.graph, precision.onnx)
        for info in model.graph.output:
            info.ClearField("type")
        for name in structural_inputs(model) | inputs_at(model, SETTINGS):
            hold(model, name, sample.arrays[name])
        generator = np.random.default_rng(0)
        for info in list(model.graph.input):
            array = np.asarray(sample.arrays[info.name])
            if info.type.tensor_type.elem_type == precision.onnx:
                arrays[info.name] = away_from_kinks(array.astype(precision.dtype), generator)
            else:
                hold(model, info.name, array)
        if not arrays:
            return cls(model, arrays, precision, has_loss=False)
        if is_sized_by_data(model):
            with_squares(model)
            return cls(model, arrays, precision, has_loss=True)
        return cls(model, arrays, precision, with_loss(model, results_of(model, arrays)))

    def slopes(self, kind: str = CONSTANT) -> dict[str, Slope]:
        """The outcome by input; raises `WrongGradientError` if a gradient is not the slope."""
        if not self.has_loss:
            return {}
        found, loss = self.gradients(self.backward(kind), kind), self.loss()
        left_out = inputs_at(self.model, STATISTICS) if kind == VARIABLE else set()
        generator = np.random.default_rng(1)
        return {
            name: self._slope(name, found.get(GRADIENT + name), partial(loss, name), generator)
            for name in self.arrays
            if name not in left_out
        }

    def loss(self) -> Callable[[str, Array], float]:
        """The loss as a function of one input."""
        module, compilation = lowered(self.model, tuple(self.arrays), CONSTANT)
        state = first_state(module, compilation.weights)

        def at(name: str, value: Array) -> float:
            moved = {**self.arrays, name: value.astype(self.precision.dtype)}
            return float(evaluate(module, moved, compilation.weights, state)[0][LOSS])

        return at

    def backward(self, kind: str) -> tuple[ModuleOp, Compilation]:
        """A module with the gradients by inputs, or by weights (`VARIABLE`)."""
        model, names = copied(self.model), tuple(self.arrays)
        for name in names if kind == VARIABLE else ():
            hold(model, name, self.arrays[name])
        module, compilation = lowered(model, names, kind)
        Autodiff(LOSS, wrt=names).run(compilation, module)
        return module, compilation

    def gradients(self, backward: tuple[ModuleOp, Compilation], kind: str) -> dict[str, Array]:
        module, compilation = backward
        inputs = {} if kind == VARIABLE else self.arrays
        with np.errstate(all="ignore"):
            state = first_state(module, compilation.weights)
            return evaluate(module, inputs, compilation.weights, state)[0]

    def _slope(
        self,
        name: str,
        gradient: Array | None,
        loss: Callable[[Array], float],
        generator: np.random.Generator,
    ) -> Slope:
        value, step = self.arrays[name], self.precision.step
        direction = generator.uniform(0.5, 1, value.shape) * generator.choice([-1, 1], value.shape)
        with np.errstate(all="ignore"):
            high, middle, low = (loss(value + side * step * direction) for side in (1, 0, -1))
        right, left = (high - middle) / step, (middle - low) / step
        margin, slope = self.precision.margin((right, left), middle), (right + left) / 2
        if not np.isfinite(slope) or abs(right - left) > margin:
            return Slope.KINK
        product = 0.0 if gradient is None else float(np.sum(gradient * direction))
        if not abs(product - slope) <= margin:
            says = "there is none" if gradient is None else f"it is {product}"
            raise WrongGradientError(f"the gradient of {name} is {slope}, but {says}")
        return Slope.ZERO if gradient is None or abs(slope) <= margin else Slope.YES


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def with_onnx(model: onnx.ModelProto) -> None:
    """Adds an import of ONNX's operators, which losses consist of."""
    if not any(opset.domain in ("", "ai.onnx") for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", 21))


def precision_of(model: onnx.ModelProto) -> Precision:
    """f64, unless the operator takes f32 only."""
    node = model.graph.node[0]
    versions = {opset.domain: opset.version for opset in model.opset_import}
    domain = node.domain
    if node.op_type in SINGLE_PARTS or domain == "ai.onnx.ml":
        return SINGLE
    if not defs.has(node.op_type, domain):
        return DOUBLE
    schema = defs.get_schema(node.op_type, versions.get(domain, 1), domain)
    formals = [one for one in schema.inputs if "tensor(float)" in one.types]
    narrow = any("tensor(double)" not in one.types for one in formals)
    return SINGLE if narrow and node.op_type not in RESIZINGS else DOUBLE


def widen(graph: onnx.GraphProto, kind: int) -> None:
    """Converts all floats of a graph and of inner graphs to one precision."""
    scales = set(structural_names(graph))
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type in FLOATS and info.name not in scales:
            info.type.tensor_type.elem_type = kind
    for tensor in graph.initializer:
        if tensor.name not in scales:
            widen_tensor(tensor, kind)
    for node in graph.node:
        widen_node(node, kind)


def structural_names(graph: onnx.GraphProto) -> Iterator[str]:
    """The scales and regions of resizing operators, which are f32 for any image type."""
    for node in graph.node:
        if node.op_type in RESIZINGS:
            yield from node.input[1:]


def widen_node(node: onnx.NodeProto, kind: int) -> None:
    for attribute in node.attribute:
        if attribute.name in PRECISIONS and attribute.i in FLOATS:
            attribute.i = kind
        if attribute.HasField("t"):
            widen_tensor(attribute.t, kind)
        if attribute.HasField("g"):
            widen(attribute.g, kind)
    inner = INNER.get(node.op_type)
    if inner and inner not in {attribute.name for attribute in node.attribute}:
        node.attribute.append(helper.make_attribute(inner, kind))


def widen_tensor(tensor: TensorProto, kind: int) -> None:
    if tensor.data_type in FLOATS:
        array = numpy_helper.to_array(tensor)
        wide = array.astype(helper.tensor_dtype_to_np_dtype(kind))
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def away_from_kinks(array: Array, generator: np.random.Generator) -> Array:
    """Moves elements off round numbers, where kinks are, towards zero to stay within [-1, 1]."""
    steps = generator.uniform(0.01, 0.05, array.shape)
    finite = np.where(np.isfinite(array), array, generator.uniform(0.5, 2, array.shape))
    return np.where(finite == 0, steps, finite - np.sign(finite) * steps).astype(array.dtype)


def title(node: onnx.NodeProto) -> str:
    """The name of an operator in `docs/ops.md`."""
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def structural_inputs(model: onnx.ModelProto) -> set[str]:
    node = model.graph.node[0]
    record = record_of(node.domain, node.op_type)
    if record is not None and record.without_gradient == STRUCTURE:
        return set(model.graph.node[0].input) - {""}
    module, node = import_model(model, Compilation().weights), model.graph.node[0]
    (op,) = (op for op in model_of(module).graph.block.ops if is_node(op, node))
    return {node.input[at] for at in structural_operands(op) if at < len(node.input)} - {""}


def is_node(op: object, node: onnx.NodeProto) -> bool:
    return isinstance(op, OnnxOp) and op.op_type == node.op_type


def inputs_at(model: onnx.ModelProto, places: Mapping[str, tuple[int, ...]]) -> set[str]:
    node = model.graph.node[0]
    found = places.get(node.op_type, ())
    return {node.input[at] for at in found if at < len(node.input)} - {""}


def hold(model: onnx.ModelProto, name: str, array: Any) -> None:
    """Turns an input into an initializer."""
    kept = [info for info in model.graph.input if info.name != name]
    if len(kept) == len(model.graph.input):
        return
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))


def lowered(
    model: onnx.ModelProto, names: tuple[str, ...], kind: str
) -> tuple[ModuleOp, Compilation]:
    compilation = Compilation()
    module = import_model(model, compilation.weights)
    lower = OnnxToGraphcore(weights=kind, training=is_sized_by_data(model), extra_outputs=names)
    for step in (InferShapes(), Normalize(), lower):
        step.run(compilation, module)
    return module, compilation


def results_of(model: onnx.ModelProto, given: Mapping[str, Array]) -> dict[str, Array]:
    """The float results of a model."""
    module, compilation = lowered(model, (), CONSTANT)
    with np.errstate(all="ignore"):
        state = first_state(module, compilation.weights)
        found, _ = evaluate(module, given, compilation.weights, state)
    floats = (np.float16, np.float32, np.float64)
    return {name: array for name, array in found.items() if array.dtype in floats}


def with_loss(model: onnx.ModelProto, results: Mapping[str, Array]) -> bool:
    """Adds the loss, a random weighted sum of all float results; returns whether there are any."""
    generator, terms = np.random.default_rng(1), [f"{name}_term" for name in results]
    versions = {opset.domain: opset.version for opset in model.opset_import}
    double = DOUBLE.onnx if versions.get("", versions.get("ai.onnx", 0)) >= 6 else "DOUBLE"
    for name, result in results.items():
        weights = generator.uniform(0.5, 1.5, result.shape).astype(result.dtype)
        model.graph.initializer.append(numpy_helper.from_array(weights, f"{name}_weights"))
        model.graph.node.extend(
            [
                helper.make_node("Mul", [name, f"{name}_weights"], [f"{name}_mixed"]),
                helper.make_node("Cast", [f"{name}_mixed"], [f"{name}_wide"], to=double),
                helper.make_node("ReduceSum", [f"{name}_wide"], [f"{name}_term"], keepdims=0),
            ]
        )
    if terms:
        model.graph.node.append(helper.make_node("Sum", terms, [LOSS]))
        del model.graph.output[:]
        model.graph.output.append(helper.make_tensor_value_info(LOSS, DOUBLE.onnx, []))
    return bool(terms)


def is_sized_by_data(model: onnx.ModelProto) -> bool:
    """Whether a result has a data-dependent size, which only training steps support."""
    return model.graph.node[0].op_type in BOUNDED


def with_squares(model: onnx.ModelProto) -> None:
    """Makes the sum of squares of the first result the output, for any number of elements."""
    result = model.graph.node[0].output[0]
    model.graph.node.extend(
        [
            helper.make_node("Mul", [result, result], [f"{result}_squares"]),
            helper.make_node("Cast", [f"{result}_squares"], [f"{result}_wide"], to=DOUBLE.onnx),
            helper.make_node("ReduceSum", [f"{result}_wide"], [LOSS], keepdims=0),
        ]
    )
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(LOSS, DOUBLE.onnx, []))


def formal_names(sample: Sample, names: Iterable[str]) -> list[str]:
    """The schema's names of a node's inputs, or their indices without a schema."""
    node = sample.model.graph.node[0]
    places = list(node.input)
    if not defs.has(node.op_type, node.domain):
        return [str(places.index(name)) if name in places else CAPTURED for name in names]
    formals = [one.name for one in defs.get_schema(node.op_type, node.domain).inputs]
    return [
        formals[min(places.index(name), len(formals) - 1)] if name in places else CAPTURED
        for name in names
    ]


CAPTURED = "captured"
"""The name of values that inner graphs capture."""


def slopes_of(samples: Iterable[Sample]) -> dict[str, dict[str, str]]:
    """The best outcome by operator and input over all samples."""
    found: dict[str, dict[str, str]] = {}
    for sample in samples:
        slopes = sample.wide.slopes()
        row = found.setdefault(sample.operator, {})
        for name, slope in zip(formal_names(sample, slopes), slopes.values(), strict=True):
            if slope is not Slope.KINK and row.get(name) != Slope.YES:
                row[name] = str(slope)
    return found
