"""
The networks of the other benchmarks in bytes, as onnxruntime's quantizer writes them.

    python benchmarks/quantized_models.py resnet50 squeezenet --threads 1

prints the times of float networks, and of networks that `popgraph.quantize` and onnxruntime's
quantizer write, in both runtimes. `--mode dynamic` and `--mode weight_only` are for matmuls.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper, version_converter

STATIC = ("resnet50", "squeezenet", "efficientnet_lite0")
DYNAMIC = ("encoder_4x256",)
LEVELS = {"w4": 0, "w4a8": 4}
"""{suffix: accuracy level of a 4-bit matmul}: level 4 permits int8 activations."""
PACKED = tuple(f"decoder_{rows}x2048_{way}" for rows in (1, 128) for way in LEVELS)
RECURRENT = ("lstm_1x64x256_i8", "lstm_8x64x256_i8")
"""
Two layers of DynamicQuantizeLSTM with eight bits, named by batch, steps and units.

Their weights have the distribution of trained ones: in text2tashkeel's LSTMs, the standard
deviation is a tenth of the largest weight, and few neighbours are both large.
"""
QUANTIZED = (
    *(f"{name}_qdq" for name in STATIC),
    *(f"{name}_dynamic" for name in DYNAMIC),
    *RECURRENT,
    *PACKED,
)
"""
Quantized networks: QuantizeLinear and DequantizeLinear around every value, with per-channel scales
of weights; or dynamic quantization of activations; or 4-bit weights in blocks of 32 (MatMulNBits).

Weights have seven bits: with eight, onnxruntime's sums saturate on machines without VNNI. Recurrent
networks have eight, as tools write them.
"""
OLDEST = 13
"""The first opset with per-axis quantization."""


def quantized(name: str, model: Callable[[str], ModelProto]) -> ModelProto:
    """A network of `QUANTIZED`; `model` builds the f32 network."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, _, way = name.rpartition("_")
    if name in RECURRENT:
        return recurrent(*map(int, plain.partition("_")[2].split("x")))
    found = model(plain)
    if way in LEVELS:
        return packed(found, LEVELS[way])
    if found.opset_import[0].version < OLDEST:
        found = version_converter.convert_version(found, 17)
    weights = {each.name for each in found.graph.initializer}
    (given,) = (each for each in found.graph.input if each.name not in weights)
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]

    class Samples(CalibrationDataReader):
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


BLOCK = 32
"""Weights per scale."""


def packed(model: ModelProto, level: int) -> ModelProto:
    """Quantizes the weights of matmuls to four bits, in symmetric blocks."""
    held = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    stored = []
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in held:
            continue
        weights = held[node.input[1]].T.reshape(-1, held[node.input[1]].shape[0] // BLOCK, BLOCK)
        scales = np.abs(weights).max(axis=-1, keepdims=True) / 7
        codes = (np.rint(weights / scales) + 8).astype(np.uint8)
        names = [f"{node.input[1]}_{what}" for what in ("codes", "scales")]
        pairs = codes[..., ::2] | codes[..., 1::2] << 4
        stored += [numpy_helper.from_array(pairs, names[0])]
        stored += [numpy_helper.from_array(scales[..., 0], names[1])]
        rows, columns = len(weights), held[node.input[1]].shape[0]
        numbers = {"N": rows, "K": columns, "bits": 4, "block_size": BLOCK}
        made = onnx.helper.make_node(
            "MatMulNBits",
            [node.input[0], *names],
            node.output,
            domain="com.microsoft",
            accuracy_level=level,
            **numbers,
        )
        node.CopyFrom(made)
    read = {name for node in model.graph.node for name in node.input}
    kept = [each for each in model.graph.initializer if each.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, *stored])
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model


def recurrent(batch: int, steps: int, units: int, layers: int = 2) -> ModelProto:
    """Layers of DynamicQuantizeLSTM, with one scale per matrix."""
    generator, nodes, stored, value = np.random.default_rng(0), [], [], "x"
    for layer in range(layers):
        held = {"bias": generator.normal(0, 0.1, (1, 8 * units)).astype(np.float32)}
        for matrix in "WR":
            weights = np.clip(np.rint(generator.laplace(0, 8, (1, units, 4 * units))), -127, 127)
            held[matrix] = weights.astype(np.int8)
            held[f"{matrix}s"] = np.array([0.004], np.float32)
            held[f"{matrix}z"] = np.zeros(1, np.int8)
        stored += [numpy_helper.from_array(array, f"{key}{layer}") for key, array in held.items()]
        matrices = [f"{key}{layer}" for key in ("W", "R", "bias")]
        scales = [f"{key}{layer}" for key in ("Ws", "Wz", "Rs", "Rz")]
        nodes += [
            onnx.helper.make_node(
                "DynamicQuantizeLSTM",
                [value, *matrices, *[""] * 4, *scales],
                [f"all{layer}"],
                domain="com.microsoft",
                hidden_size=units,
            ),
            onnx.helper.make_node("Squeeze", [f"all{layer}", "axis"], [f"y{layer}"]),
        ]
        value = f"y{layer}"
    stored.append(numpy_helper.from_array(np.array([1]), "axis"))
    shapes = {name: [steps, batch, units] for name in ("x", value)}
    first, last = (onnx.helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items())
    graph = onnx.helper.make_graph(nodes, "lstm", [first], [last], stored)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def raced(name: str, mode: str, threads: int) -> list[tuple[str, str, float]]:
    """(runtime, form, best seconds) of a network in floats and of its quantized forms."""
    import onnxruntime
    from models import model

    import popgraph
    from popgraph.measure.timing import Contestant, race

    plain = model(name)
    if plain.opset_import[0].version < OLDEST:
        plain = version_converter.convert_version(plain, 17)
    held = {each.name for each in plain.graph.initializer}
    generator = np.random.default_rng(0)
    data = {
        each.name: generator.standard_normal(
            [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for each in plain.graph.input
        if each.name not in held
    }
    ours = popgraph.quantize(plain, [data], mode=mode, reduce_range=True, measure_errors=False)
    forms = {"float": plain, "popgraph.quantize": ours.model}
    suffix = {"static": "qdq", "dynamic": "dynamic"}.get(mode)
    if suffix:
        forms["onnxruntime's quantizer"] = quantized(f"{name}_{suffix}", model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    contestants: list[tuple[str, str, Contestant]] = []
    for form, each in forms.items():
        run = popgraph.compile(each, threads=threads, quick=False)
        session = onnxruntime.InferenceSession(each.SerializeToString(), options)
        contestants += [
            ("popgraph", form, Contestant(form, partial(run, data))),
            ("onnxruntime", form, Contestant(form, partial(session.run, None, data), many=True)),
        ]
    race([each for *_, each in contestants], threads=threads, seconds=5, rounds=5)
    return [(runtime, form, each.best) for runtime, form, each in contestants]


def main() -> None:
    """Prints a table per network."""
    from models import known

    from popgraph.support.tables import table

    parser = argparse.ArgumentParser(description="Times float and quantized networks.")
    parser.add_argument("names", nargs="+", type=known, metavar="NETWORK")
    parser.add_argument("--mode", default="static", choices=["static", "dynamic", "weight_only"])
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    for name in given.names:
        rows = raced(name, given.mode, given.threads)
        best = {runtime: seconds for runtime, form, seconds in rows if form == "float"}
        print(f"{name}, {given.threads} threads")
        print(
            table(
                [
                    ("runtime", "model", "ms", "faster than float"),
                    *(
                        (runtime, form, f"{seconds * 1e3:.2f}", f"{best[runtime] / seconds:.2f}x")
                        for runtime, form, seconds in rows
                    ),
                ]
            )
        )


if __name__ == "__main__":
    main()
