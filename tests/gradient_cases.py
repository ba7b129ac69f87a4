"""Nodes for tests of gradients: ONNX's cases, and samples that they lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx import helper

from popgraph.conformance.cases import Case, all_cases
from popgraph.dialects.onnx.record import records
from popgraph.operators.record import HOSTED
from popgraph.passes.onnx.operator_ways import rows
from popgraph.support.arrays import Array
from tests.dialects.test_onnx_contrib import SAMPLES
from tests.gradients import Sample

REALS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE}
GC, ML, MS = "ai.graphcore", "ai.onnx.ml", "com.microsoft"
GENERATOR = np.random.default_rng(7)

OF_BITS = {"BitCast"}
"""Operators on bit patterns, which cannot be judged in a wider type."""

ROUNDED = {"DynamicQuantizeLSTM"}
"""Operators that round between iterations, so that finite differences see jumps."""

Cases = Iterator[Sample]


def draw(*shape: int) -> Array:
    return np.asarray(GENERATOR.normal(size=shape))


def near(*shape: int, low: float = 0.2, high: float = 0.9) -> Array:
    return np.asarray(GENERATOR.uniform(low, high, shape))


def whole(*numbers: Any) -> Array:
    return np.array(numbers, np.int64)


def ints(*numbers: Any) -> Array:
    return np.array(numbers, np.int32)


def unsigned(*arrays: Any) -> list[Array]:
    return [np.array(one, np.uint32) for one in arrays]


def case(
    op: str,
    *inputs: Array | None,
    opset: int = 22,
    domain: str = "",
    outputs: int = 1,
    **attributes: Any,
) -> Sample:
    """A sample of one node; f64 inputs become f32 if the operator admits nothing wider."""
    names = ["" if one is None else f"x{at}" for at, one in enumerate(inputs)]
    arrays = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in arrays.items()
    ]
    results = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(domain, 1)] if domain else []
    graph = helper.make_graph([node], "g", infos, made)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    listed = ", ".join(f"{key}={value}" for key, value in attributes.items())
    return Sample(f"{op}-{opset}({listed})"[:80], model, arrays)


def elementwise() -> Cases:
    x = draw(2, 3)
    yield case("Cast", x, to=onnx.TensorProto.DOUBLE)
    yield case("CastLike", x, draw(1))
    yield case("Clip", x, np.array(-0.5), np.array(0.5))
    yield case("Clip", x, opset=6, min=-0.5, max=0.5)
    yield case("PRelu", draw(2, 3, 4), near(3, 1))
    yield case("PRelu", draw(2, 3, 4), near(1), opset=7)
    yield case("Mod", draw(4), near(4), fmod=1)
    yield case("Pow", near(3), draw(2, 3))
    yield case("Acos", near(4))
    yield case("Asin", near(4))
    yield case("ReduceL2", draw(2, 3), whole(1), opset=18)
    yield case("ReduceLogSum", near(2, 3), axes=[1], opset=11)
    yield case("Sqrt", near(3))
    yield case("Reciprocal", near(3))
    yield case("Cos", x)
    yield case("Where", np.array([True, False, True]), draw(3), draw(2, 3))
    yield case("Gelu", x, opset=20, approximate="tanh")
    yield case("Softmax", draw(2, 3, 4), opset=11, axis=1)
    yield case("LogSoftmax", draw(2, 3, 4), opset=11, axis=1)
    yield case("Dropout", x, opset=10)
    for op in ("Add", "Mul", "Sub", "Div"):
        yield case(op, draw(2, 3, 4), near(3), opset=6, broadcast=1, axis=1)
    for op in ("Max", "Min"):
        yield case(op, draw(2, 3), draw(3), draw(1))


def movements() -> Cases:
    x = draw(2, 3, 4)
    for mode in ("constant", "reflect", "edge", "wrap"):
        value = np.array(0.3) if mode == "constant" else None
        yield case("Pad", x, whole(1, 0, 2, 0, -1, 1), value, mode=mode)
    yield case("Pad", x, whole(1, 2), np.array(0.3), whole(2))
    yield case("Pad", x, opset=2, pads=[0, 1, 0, 0, 0, 2], mode="reflect")
    yield case("Slice", x, opset=1, axes=[1, 2], starts=[1, 0], ends=[3, 2])
    yield case("Slice", x, whole(-1), whole(-5), whole(2), whole(-2))
    yield case("Split", x, opset=11, outputs=2, axis=2, split=[1, 3])
    yield case("TopK", x, opset=1, outputs=2, axis=2, k=2)
    for largest, ordered in product((0, 1), (0, 1)):
        yield case("TopK", x, whole(2), outputs=2, axis=1, largest=largest, sorted=ordered)
    yield case("ReverseSequence", draw(4, 3, 2), whole(1, 4, 2), batch_axis=1, time_axis=0)
    yield case("ReverseSequence", draw(3, 4), whole(1, 4, 2), batch_axis=0, time_axis=1)
    yield case("Gather", x, np.array([[0, 2], [-1, 0]]), axis=1)
    yield case(
        "GatherND", draw(3, 4, 2), np.array([[[0], [2]], [[1], [1]], [[3], [0]]]), batch_dims=1
    )
    yield case("GatherElements", x, GENERATOR.integers(-3, 3, (2, 2, 4)), axis=1)
    yield case("OneHot", whole(0, 2, 1), np.array(3), draw(2), axis=0)
    yield case("Trilu", draw(3, 4), np.array(1), upper=0)
    yield case("Tile", x, whole(1, 2, 3))
    yield case("CumSum", x, np.array(1), reverse=1, exclusive=1)
    yield case("CumProd", x, np.array(1), opset=26, reverse=1, exclusive=1)


def scatterings() -> Cases:
    reductions = ("none", "add", "mul", "max", "min")
    for reduction, repeated in product(reductions, (False, True)):
        rows_ = np.array([[0, 2], [0, 1]] if repeated else [[0, 2], [1, 0]])
        yield case(
            "ScatterElements", draw(2, 3), rows_, draw(2, 2), axis=1, reduction=reduction, opset=18
        )
        places = np.array([[0], [0]] if repeated else [[2], [0]])
        yield case("ScatterND", draw(3, 2), places, draw(2, 2), reduction=reduction, opset=18)
    yield case("Scatter", draw(3, 3), np.array([[1, 0, 2]]), draw(1, 3), opset=9)
    for mode in ("linear", "circular"):
        cache_, update = draw(2, 4, 3), draw(2, 2, 3)
        yield case(
            "TensorScatter",
            cache_,
            update,
            whole(1, 2 + (mode == "circular")),
            opset=24,
            mode=mode,
            axis=1,
        )
    for word in ("sum", "mul", "max", "min", "none"):
        settings = {"axis": 0, "axis_size": 4, "reduction": word}
        places = np.array([[0], [2], [1]] if word == "none" else [[0], [2], [0]])
        yield case("ScatterReduce", draw(3, 1), places, domain=GC, **settings)
        yield case("ScatterReduce", draw(3, 1), places, draw(4, 1), domain=GC, **settings)


def resizings() -> Cases:
    image = draw(1, 2, 4, 5)
    for mode in ("nearest", "linear", "cubic"):
        for transform in (
            "half_pixel",
            "align_corners",
            "asymmetric",
            "pytorch_half_pixel",
            "half_pixel_symmetric",
        ):
            yield case(
                "Resize",
                image,
                None,
                None,
                whole(1, 2, 7, 3),
                opset=19,
                mode=mode,
                coordinate_transformation_mode=transform,
            )
        region = np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 0.7], np.float32)
        yield case(
            "Resize",
            image,
            region,
            None,
            whole(1, 2, 3, 3),
            opset=19,
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
        )
        if mode != "nearest":
            yield case(
                "Resize",
                image,
                None,
                np.array([1, 1, 0.6, 0.5], np.float32),
                opset=19,
                mode=mode,
                antialias=1,
            )
    for mode in ("nearest", "linear"):
        yield case("Resize", image, np.array([1, 1, 2, 1.5], np.float32), opset=10, mode=mode)
        yield case("Upsample", image, np.array([1, 1, 2, 3], np.float32), opset=9, mode=mode)
        yield case("Upsample", image, opset=7, mode=mode, scales=[1.0, 1.0, 2.0, 2.0])
    for mode, padding, corners in product(
        ("linear", "cubic", "nearest"), ("zeros", "border", "reflection"), (0, 1)
    ):
        grid = GENERATOR.uniform(-1.4, 1.4, (1, 3, 2, 2))
        yield case(
            "GridSample",
            image,
            grid,
            opset=20,
            mode=mode,
            padding_mode=padding,
            align_corners=corners,
        )
    for mode in ("bilinear", "bicubic", "nearest"):
        yield case(
            "GridSample", image, GENERATOR.uniform(-1.4, 1.4, (1, 3, 2, 2)), opset=16, mode=mode
        )
    for mode in ("linear", "nearest"):
        grid = GENERATOR.uniform(-1.2, 1.2, (1, 2, 2, 3, 3))
        yield case("GridSample", draw(1, 2, 3, 4, 3), grid, opset=20, mode=mode)
    yield case("AffineGrid", draw(2, 2, 3), whole(2, 2, 3, 4), opset=20)


def regions() -> Cases:
    image = draw(2, 2, 8, 8)
    boxes = np.array([[0.7, 1.3, 5.1, 6.2], [1.2, 0.6, 6.6, 4.3]])
    for mode, way, ratio in product(("avg", "max"), ("half_pixel", "output_half_pixel"), (0, 2)):
        yield case(
            "RoiAlign",
            image,
            boxes,
            whole(0, 1),
            mode=mode,
            coordinate_transformation_mode=way,
            sampling_ratio=ratio,
            output_height=2,
            output_width=3,
        )
    yield case(
        "RoiAlign",
        image,
        boxes,
        whole(0, 1),
        opset=10,
        output_height=2,
        output_width=2,
        sampling_ratio=2,
    )
    offsets, mask = GENERATOR.uniform(-0.4, 0.4, (1, 16, 3, 3)), near(1, 8, 3, 3)
    weights, bias = draw(4, 1, 2, 2), draw(4)
    yield case(
        "DeformConv",
        draw(1, 2, 4, 4),
        weights,
        offsets,
        bias,
        mask,
        group=2,
        offset_group=2,
        kernel_shape=[2, 2],
    )
    yield case(
        "DeformConv",
        draw(1, 2, 4, 4),
        draw(3, 2, 2, 2),
        GENERATOR.uniform(-0.4, 0.4, (1, 8, 3, 3)),
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        dilations=[1, 1],
    )


def windows() -> Cases:
    x = draw(1, 2, 5, 6)
    for p, more in product(
        (1, 2, 3), ({}, {"pads": [1, 0, 1, 1]}, {"ceil_mode": 1}, {"dilations": [2, 2]})
    ):
        yield case("LpPool", x, p=p, kernel_shape=[2, 3], strides=[2, 2], **more)
    yield case("LpPool", x, opset=1, p=2.0, kernel_shape=[2, 2])
    yield case("GlobalAveragePool", x)
    for p in (1, 2, 3):
        yield case("GlobalLpPool", x, p=p)
    regions_ = np.array([[0, 0.3, 0.2, 3.4, 4.4], [0, 1.2, 1.3, 4.2, 3.3]])
    yield case("MaxRoiPool", x, regions_, pooled_shape=[2, 2])
    for order in (0, 1):
        yield case(
            "MaxPool",
            x,
            outputs=2,
            kernel_shape=[2, 2],
            strides=[2, 1],
            pads=[1, 0, 0, 1],
            storage_order=order,
        )
    yield case("MaxPool", x, kernel_shape=[2, 2], dilations=[2, 1], ceil_mode=1, strides=[2, 2])
    yield case("AveragePool", x, kernel_shape=[2, 2], pads=[1, 1, 0, 0], count_include_pad=1)
    yield case("AveragePool", x, kernel_shape=[2, 3], dilations=[2, 1], ceil_mode=1, strides=[2, 2])
    pooled = draw(1, 1, 2, 2)
    places = np.array([[[[0, 3], [9, 14]]]])
    yield case("MaxUnpool", pooled, places, kernel_shape=[2, 2], strides=[2, 2])
    yield case("MaxUnpool", pooled, places, whole(1, 1, 5, 5), kernel_shape=[2, 2], strides=[2, 2])
    yield case("Col2Im", draw(1, 8, 6), whole(3, 4), whole(2, 2), opset=18)
    yield case(
        "Col2Im",
        draw(1, 4, 4),
        whole(3, 4),
        whole(2, 2),
        opset=18,
        strides=[2, 2],
        dilations=[1, 2],
        pads=[1, 0, 0, 1],
    )
    bias = draw(4)
    yield case(
        "Conv",
        x,
        draw(4, 1, 3, 2),
        bias,
        group=2,
        pads=[1, 0, 0, 1],
        strides=[2, 1],
        dilations=[1, 2],
    )
    yield case("Conv", x, draw(4, 2, 2, 2), bias, auto_pad="SAME_UPPER")
    yield case(
        "ConvTranspose",
        x,
        draw(2, 2, 3, 3),
        bias,
        group=2,
        strides=[2, 1],
        output_padding=[1, 0],
        pads=[1, 1, 0, 0],
    )


def norms() -> Cases:
    x = draw(2, 3, 4)
    for p, axis in product((1, 2), (-1, 1)):
        yield case("LpNormalization", x, p=p, axis=axis)
    scale, shift, mean, variance = near(3), draw(3), draw(3), near(3)
    yield case("BatchNormalization", x, scale, shift, mean, variance, opset=15)
    yield case(
        "BatchNormalization",
        x,
        scale,
        shift,
        mean,
        variance,
        opset=15,
        outputs=3,
        training_mode=1,
        momentum=0.7,
    )
    yield case("BatchNormalization", x, scale, shift, mean, variance, opset=9)
    yield case("BatchNormalization", x, scale, shift, mean, variance, opset=7, outputs=5)
    for domain in ("", GC):
        yield case(
            "GroupNormalization",
            draw(2, 4, 3),
            near(4),
            draw(4),
            opset=21,
            domain=domain,
            num_groups=2,
            epsilon=0.1,
        )
    yield case("BatchNormalization", x, scale, shift, mean, variance, domain=GC, training_mode=0)
    yield case("InstanceNormalization", x, scale, shift, epsilon=0.1)
    yield case("LayerNormalization", x, near(4), draw(4), opset=17, outputs=3, axis=-1)
    yield case("LRN", draw(1, 5, 2, 2), size=3, alpha=0.3, beta=0.6, bias=1.5)
    yield case("MeanVarianceNormalization", draw(2, 3, 2, 2), axes=[0, 2])


def products() -> Cases:
    yield case("Gemm", draw(3, 2), draw(4, 3), draw(4), transA=1, transB=1, alpha=0.5, beta=2.0)
    yield case("Gemm", draw(2, 3), draw(3, 4), draw(4), opset=6, broadcast=1)
    equations: Mapping[str, Sequence[tuple[int, ...]]] = {
        "ij,jk->ik": [(2, 3), (3, 4)], "ii->i": [(3, 3)], "ii": [(3, 3)],
        "...ij,jk": [(2, 2, 3), (3, 2)], "bij,bjk,kl->il": [(2, 2, 3), (2, 3, 2), (2, 3)],
        "ij->": [(2, 3)], "i,j": [(2,), (3,)],
    }  # fmt: skip
    for equation, shapes in equations.items():
        yield case("Einsum", *(draw(*shape) for shape in shapes), equation=equation, opset=12)
    yield case("Det", draw(2, 3, 3))
    yield case("Det", np.array([[1.0, 2.0], [2.0, 4.0]]))


def signals() -> Cases:
    for inverse, one_sided, complex_ in product((0, 1), (0, 1), (1, 2)):
        if not (one_sided and (inverse or complex_ == 2)):
            yield case(
                "DFT",
                draw(2, 5, complex_),
                None,
                np.array(1),
                opset=20,
                inverse=inverse,
                onesided=one_sided,
            )
    yield case("DFT", draw(2, 5, 2), np.array(7), np.array(1), opset=20)
    yield case("DFT", draw(2, 5, 1), np.array(3), opset=17, axis=1)
    for one_sided, complex_ in ((0, 1), (1, 1), (0, 2)):
        yield case(
            "STFT",
            draw(1, 12, complex_),
            np.array(3),
            near(6),
            np.array(6),
            opset=17,
            onesided=one_sided,
        )
    yield case("STFT", draw(1, 12, 1), np.array(4), None, np.array(5), opset=17)


def recurrences() -> Cases:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}
    settings: Sequence[Mapping[str, Any]] = (
        {}, {"direction": "reverse"}, {"direction": "bidirectional"}, {"clip": 0.7}, {"layout": 1},
    )  # fmt: skip
    for (op, count), more in product(gates.items(), settings):
        yield recurrence(op, count, more)
    yield recurrence("GRU", 3, {"linear_before_reset": 1})
    yield recurrence("LSTM", 4, {"input_forget": 1})
    for name in ("Affine", "LeakyRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"):
        numbers = {"activation_alpha": [0.3], "activation_beta": [0.4]}
        yield recurrence("RNN", 1, {"activations": [name], **numbers})


def recurrence(op: str, gates: int, more: Mapping[str, Any]) -> Sample:
    steps, batch, features, hidden = 3, 2, 2, 3
    ways = 2 if more.get("direction") == "bidirectional" else 1
    first = (batch, ways) if more.get("layout") else (ways, batch)
    x = draw(*((batch, steps) if more.get("layout") else (steps, batch)), features)
    inputs: list[Array] = [
        x, draw(ways, gates * hidden, features), draw(ways, gates * hidden, hidden),
        draw(ways, 2 * gates * hidden), np.array([3, 2], np.int32), draw(*first, hidden),
    ]  # fmt: skip
    if op == "LSTM":
        inputs += [draw(*first, hidden), draw(ways, 3 * hidden)]
    return case(op, *inputs, outputs=3 if op == "LSTM" else 2, hidden_size=hidden, **more)


def quantized() -> Cases:
    numbers = GENERATOR.integers(0, 99, (4, 6)).astype(np.uint8)
    for scales, more in (
        (near(), {}), (near(6), {"axis": 1}), (near(2, 6), {"axis": 0, "block_size": 2}),
    ):  # fmt: skip
        zero = np.full(scales.shape, 7, np.uint8)
        yield case("DequantizeLinear", numbers, scales.astype(np.float32), zero, opset=21, **more)
    small = GENERATOR.integers(0, 9, (2, 3)).astype(np.uint8)
    yield case("DequantizeLinear", small, np.array(0.3, np.float32), None, opset=10)


def classical() -> Cases:
    x = draw(4, 3).astype(np.float32)

    def of(op: str, *inputs: Array, outputs: int = 1, **attributes: Any) -> Sample:
        return case(op, *(inputs or (x,)), domain=ML, outputs=outputs, **attributes)

    yield of("Scaler", offset=[0.1, 0.2, 0.3], scale=[1.0, 2.0, 0.5])
    for norm in ("MAX", "L1", "L2"):
        yield of("Normalizer", near(4, 3).astype(np.float32), norm=norm)
    matrix = [0.1, 0.2, -0.3, 0.4, 0.5, -0.6]
    yield of("LinearRegressor", targets=2, coefficients=matrix, intercepts=[0.1, -0.2])
    for last in ("NONE", "SOFTMAX", "LOGISTIC"):
        yield of(
            "LinearClassifier",
            outputs=2,
            classlabels_ints=[0, 1, 2],
            coefficients=[*matrix, 0.7, -0.8, 0.9],
            intercepts=[0.1, 0.2, 0.3],
            post_transform=last,
        )
    vectors = [float(number) for number in draw(6)]
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        yield of(
            "SVMRegressor",
            near(4, 3).astype(np.float32),
            kernel_type=kernel,
            kernel_params=[0.5, 0.3, 2.0],
            n_supports=2,
            coefficients=[0.4, -0.7],
            support_vectors=vectors,
            rho=[0.2],
        )
    yield of(
        "SVMClassifier",
        outputs=2,
        kernel_type="RBF",
        kernel_params=[0.5, 0.0, 3.0],
        classlabels_ints=[0, 1],
        vectors_per_class=[1, 1],
        coefficients=[0.4, -0.7],
        support_vectors=vectors,
        rho=[0.2],
    )
    yield of("Imputer", imputed_value_floats=[0.5], replaced_value_float=9.0)
    yield of("FeatureVectorizer", x, draw(4, 2).astype(np.float32), inputdimensions=[3, 2])
    yield of("ArrayFeatureExtractor", x, whole(0, 2))


def of_popart() -> Cases:
    x = draw(2, 3)

    def of(op: str, *inputs: Array | None, **attributes: Any) -> Sample:
        return case(op, *(inputs or (x,)), domain=GC, **attributes)

    for op in ("Gelu", "GeluErf", "Expm1", "Swish"):
        yield of(op)
    yield of("Log1p", near(2, 3))
    for op in ("Atan2", "Fmod", "Remainder"):
        yield of(op, x, near(2, 3))
    for reduction in ("Sum", "Mean", "NoReduction"):
        yield of("L1", reduction=reduction, **{"lambda": 0.3})
        yield of("IdentityLoss", reduction=reduction)
        yield of("Nll", near(2, 3), np.array([0, 2]), reduction=reduction)
    yield of(
        "Nll",
        -near(2, 3),
        np.array([0, 2]),
        inputIsLogProbability=1,
        ignoreIndex=2,
        reduction="Sum",
    )
    yield of("Scale", scale=3.0)
    yield of("ScaledAdd", x, draw(2, 3), scale0=0.5, scale1=2.0)
    yield of("ScaledAdd", x, draw(2, 3), np.array(0.5), np.array(0.7))
    yield of("Reverse", dimensions=[1])
    yield of("Subsample", strides=[1, 2])
    yield of("Reshape", shape=[3, 2])
    yield of("Slice", x, whole(0), whole(2), whole(1))
    yield of("DepthToSpace", draw(1, 4, 2, 2), blocksize=2)
    yield of("ShapedDropout", shape=[1, 3], ratio=0.3)
    yield of("NearbyInt")
    yield of("Round")
    for op in ("Nop", "PrintTensor", "TensorRemap"):
        yield of(op)
    yield of("IncrementMod", increment=3.0, modulus=4.0)
    yield of("Sort", axis=0, descending=1, outputs=2)
    yield of("ReduceMedian", axes=[1], keepdims=0, outputs=2)
    yield of("GroupedGather", draw(2, 3, 2), ints([2, 0], [1, 1]), axis=1, group_size=2)
    yield of("SplineBasis", near(4, 2), ints(7, 4), np.array([1, 0], np.uint8), outputs=2)
    yield of("SplineWeighting", draw(2, 3), draw(4, 3, 2), draw(2, 2), ints([0, 3], [1, 1]))
    where, place = {"axes": [0], "sizes": [2]}, unsigned([1])
    for op, rest in (("Slice", []), ("Update", [draw(2, 3)]), ("Add", [draw(2, 3)]), ("Zero", [])):
        yield of(f"Dynamic{op}", draw(4, 3), *place, *rest, **where)
    yield of("SequenceSlice", draw(5, 2), draw(4, 2), *unsigned([2, 1], [0, 3], [1, 3]))
    images = draw(1, 2, 5), draw(3, 2, 3), draw(3), draw(2, 1, 4, 4), draw(2, 1, 2, 2), None
    yield of("MultiConv", *images, outputs=2, strides=[1, 2, 1], pads=[1, 0, 0, 0, 1, 0])
    yield of("NormalizeImage", near(2, 2, 3), draw(3), near(3), scale=0.5)
    rates = np.log(near(4, 2, 3))
    yield of("Ctc", rates, *unsigned([[1, 2], [2, 1]], [4, 3], [2, 1]), reduction="Sum")
    yield of("CtcBeamSearchDecoder", rates, *unsigned([4, 3]), outputs=3, beam_width=4, top_paths=2)
    yield of("LSTM", draw(3, 2, 2), draw(4, 5, 3), draw(4, 3), draw(2, 2, 3), outputs=2)


def of_onnxruntime() -> Cases:
    """Samples of com.microsoft operators that onnxruntime's tests lack."""

    def of(op: str, *inputs: Array | None, **attributes: Any) -> Sample:
        return case(op, *inputs, domain=MS, **attributes)

    codes, scale = GENERATOR.integers(0, 9, (2, 3)).astype(np.uint8), near(3)
    zero = np.full(3, 5, np.uint8)
    yield of("DequantizeLinear", codes, scale, zero, axis=1)
    factors = codes, codes.T.copy(), near(), near(), zero[:1].reshape(()), zero[:1].reshape(())
    yield of("MatMulIntegerToFloat", *factors, draw(2))
    yield of("DynamicQuantizeMatMul", draw(2, 3), codes.T.copy(), near(), zero[:1].reshape(()))
    yield of("BiasSoftmax", draw(2, 3, 4), draw(2, 1, 4), axis=2, is_inner_broadcast=0)
    yield of("BiasDropout", draw(2, 5), draw(5), draw(2, 5))
    image, filters = draw(1, 4, 5, 2), draw(3, 2, 2, 2)
    yield of("NhwcConv", image, filters, draw(3))
    yield of("NhwcFusedConv", image, filters, draw(3), activation="Tanh")


def branches() -> Cases:
    """Graphs inside nodes with captured values, or with inputs."""
    info = helper.make_tensor_value_info
    double, shape = onnx.TensorProto.DOUBLE, [2, 3]
    made = [info("z", double, shape)]

    def graph(op: str, *taken: onnx.ValueInfoProto) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["x0"], ["z"])], op, [*taken], made)

    node = helper.make_node("If", ["c"], ["y"], then_branch=graph("Exp"), else_branch=graph("Sin"))
    infos = [info("c", onnx.TensorProto.BOOL, []), info("x0", double, shape)]
    outside = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(outside, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    yield Sample("If", model, {"c": np.array(True), "x0": draw(2, 3)})
    callee = graph("Tanh", info("x0", double, shape))
    yield case("Call", draw(2, 3), domain=GC, callee=callee)


TABLES = (
    elementwise, movements, scatterings, resizings, regions, windows, norms, products, signals,
    recurrences, branches, quantized, classical, of_popart, of_onnxruntime,
)  # fmt: skip


def own_cases() -> list[Sample]:
    """Samples that ONNX's cases lack."""
    return [sample for table in TABLES for sample in table()]


def onnx_cases() -> list[Sample]:
    """ONNX's cases of one node with float inputs and outputs."""
    compiled = {row.title for row in rows() if row.way.is_compiled} - OF_BITS
    found = [_sample(case_) for case_ in all_cases() if _is_about_one(case_)]
    return [sample for sample in found if sample.operator in compiled]


def _is_about_one(found: Case) -> bool:
    if found.kind != "node" or "_expanded" in found.name or not found.is_here:
        return False
    graph = found.model.graph
    return len(graph.node) == 1 and any(map(_is_real, graph.input))


def _is_real(info: onnx.ValueInfoProto) -> bool:
    return info.type.tensor_type.elem_type in REALS


def _sample(found: Case) -> Sample:
    inputs, _ = found.data_sets()[0]
    names = [info.name for info in found.model.graph.input]
    return Sample(found.name, found.model, dict(zip(names, inputs, strict=False)))


def onnxruntime_cases() -> list[Sample]:
    """The samples whose values other tests compare with onnxruntime."""
    hosted = {
        f"{one.domain}.{one.name}".lstrip(".")
        for one in records().values()
        if one.without_gradient == HOSTED
    }
    made = [
        Sample(f"{one.op}-{at}", one.model(), one.given)
        for at, one in enumerate(SAMPLES)
        if one.op not in ROUNDED
    ]
    return [sample for sample in made if sample.operator not in hosted]


@cache
def all_samples() -> tuple[Sample, ...]:
    return (*own_cases(), *onnxruntime_cases(), *onnx_cases())
