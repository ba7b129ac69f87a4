"""The networks of the other benchmarks in bytes, as onnxruntime's quantizer writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import ModelProto, version_converter

STATIC = ("resnet50", "squeezenet", "efficientnet_lite0")
DYNAMIC = ("encoder_4x256",)
QUANTIZED = (*(f"{name}_qdq" for name in STATIC), *(f"{name}_dynamic" for name in DYNAMIC))
"""
By what is done to a network: QuantizeLinear and DequantizeLinear around every value, with a scale
for each map of weights, or weights alone, with scales of activations that are computed as it runs.

Weights have seven bits: with eight, onnxruntime's sums saturate where a machine has no VNNI.
"""
OLDEST = 13
"""The first opset whose quantization knows scales of an axis."""


def quantized(name: str, model: Callable[[str], ModelProto]) -> ModelProto:
    """A network of `QUANTIZED`, made of what `model` gives for its plain name."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, _, way = name.rpartition("_")
    found = model(plain)
    if found.opset_import[0].version < OLDEST:
        found = version_converter.convert_version(found, 17)
    weights = {each.name for each in found.graph.initializer}
    (given,) = (each for each in found.graph.input if each.name not in weights)
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        """Two inputs of normal numbers."""

        def __init__(self) -> None:
            generator = np.random.default_rng(0)
            self._left = [generator.standard_normal(shape).astype(np.float32) for _ in range(2)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return {given.name: self._left.pop()} if self._left else None

    with TemporaryDirectory() as folder:
        source, prepared, target = (Path(folder, f"{at}.onnx") for at in ("a", "b", "c"))
        onnx.save(found, source)
        if way == "dynamic":
            quantize_dynamic(source, target, reduce_range=True, weight_type=QuantType.QInt8)
        else:
            quant_pre_process(source, prepared, skip_symbolic_shape=True)
            quantize_static(
                prepared,
                target,
                Samples(),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                reduce_range=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        return onnx.load(target)
