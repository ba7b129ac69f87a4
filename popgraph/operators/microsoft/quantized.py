"""Operators that onnxruntime's quantizers emit, by dequantization or by i32 sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from popgraph.operators.microsoft.attention import attended_together
from popgraph.operators.microsoft.body import Value, total
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.fusions import channels_first, channels_last
from popgraph.operators.microsoft.normalizations import counted_mask, embedded, normalized
from popgraph.operators.record import INTEGERS


def real(call: Call, name: str) -> Value:
    """A dequantized input: `X` has the scale `Xs` and the zero point `Xz`."""
    return call[name].DequantizeLinear(call[f"{name}s"], call.get(f"{name}z"))


def quantized(call: Call, value: Value, like: str) -> Value:
    """A result quantized by the scale `Ys` and the zero point `Yz`, or 0 in `like`'s type."""
    zero = call.get("Yz")
    return value.QuantizeLinear(call["Ys"], call[like].number(0) if zero is None else zero)


# By dequantization


@defines("QuantizeLinear", "X Ys Yz", without_gradient=INTEGERS)
def quantize_linear(call: Call) -> Value:
    given = {"axis": 1} | call.copied("axis block_size output_dtype saturate")
    return call["X"].QuantizeLinear(call["Ys"], call.get("Yz"), **given)


@defines("DequantizeLinear", "X Xs Xz")
def dequantize_linear(call: Call) -> Value:
    given = {"axis": 1} | call.copied("axis block_size")
    return call["X"].DequantizeLinear(call["Xs"], call.get("Xz"), **given)


@defines("QLinearAdd", "A As Az B Bs Bz Ys Yz", without_gradient=INTEGERS)
def qlinear_add(call: Call) -> Value:
    return quantized(call, real(call, "A") + real(call, "B"), "A")


@defines("QLinearMul", "A As Az B Bs Bz Ys Yz", without_gradient=INTEGERS)
def qlinear_mul(call: Call) -> Value:
    return quantized(call, real(call, "A") * real(call, "B"), "A")


@defines("QLinearWhere", "condition X Xs Xz Y Ws Wz Ys Yz", without_gradient=INTEGERS)
def qlinear_where(call: Call) -> Value:
    other = call["Y"].DequantizeLinear(call["Ws"], call.get("Wz"))
    return quantized(call, call["condition"].Where(real(call, "X"), other), "X")


@defines("QLinearSigmoid", "X Xs Xz Ys Yz", without_gradient=INTEGERS)
def qlinear_sigmoid(call: Call) -> Value:
    return quantized(call, real(call, "X").Sigmoid(), "X")


@defines("QLinearLeakyRelu", "X Xs Xz Ys Yz", without_gradient=INTEGERS)
def qlinear_leaky_relu(call: Call) -> Value:
    return quantized(call, real(call, "X").LeakyRelu(**call.copied("alpha")), "X")


@defines("QLinearSoftmax", "X Xs Xz Ys Yz", without_gradient=INTEGERS)
def qlinear_softmax(call: Call) -> Value:
    """Softmax; before opset 13, all axes from the given one on are flattened."""
    x, axis, rank = real(call, "X"), call.integer("axis", -1), call.rank("X")
    if call.needs("opset") >= 13:
        return quantized(call, x.Softmax(axis=axis), "X")
    rows = x.reshaped(*[0] * (axis % rank), -1).Softmax(axis=-1)
    return quantized(call, rows.Reshape(x.Shape()), "X")


def _images(call: Call, made: Callable[..., Value]) -> Value:
    """Calls `made` with a function that moves channels to axis 1, and moves them back after it."""
    if not call.integer("channels_last"):
        return made(lambda value: value)
    rank = call.rank("X")
    return channels_last(made(lambda value: channels_first(value, rank)), rank)


@defines("QLinearGlobalAveragePool", "X Xs Xz Ys Yz", without_gradient=INTEGERS)
def qlinear_global_average_pool(call: Call) -> Value:
    made = _images(call, lambda front: front(real(call, "X")).GlobalAveragePool())
    return quantized(call, made, "X")


@defines("QLinearAveragePool", "X Xs Xz Ys Yz", without_gradient=INTEGERS)
def qlinear_average_pool(call: Call) -> Value:
    given = call.copied("auto_pad ceil_mode count_include_pad kernel_shape pads strides")
    made = _images(call, lambda front: front(real(call, "X")).AveragePool(**given))
    return quantized(call, made, "X")


@defines("QLinearConv", "X Xs Xz W Ws Wz Ys Yz B", without_gradient=INTEGERS)
def qlinear_conv(call: Call) -> Value:
    """ONNX's QLinearConv, with i32 sums."""
    given = call.copied("auto_pad dilations group kernel_shape pads strides")
    scales = [call[name] for name in ("Xs", "Xz", "W", "Ws", "Wz", "Ys", "Yz")]
    bias = call.get("B")
    return _images(call, lambda front: front(call["X"]).QLinearConv(*scales, bias, **given))


@defines("QLinearConcat", "Ys Yz X...", without_gradient=INTEGERS)
def qlinear_concat(call: Call) -> Value:
    """Inputs: scale and zero point of the result, then (tensor, scale, zero point) per part."""
    parts = call.inputs[2:]
    if not parts or len(parts) % 3:
        raise call.unfit()
    first, *more = (
        call[x].DequantizeLinear(call[scale], call[zero])
        for x, scale, zero in zip(*[iter(parts)] * 3, strict=True)
    )
    made = first.Concat(*more, axis=call.integer("axis", 1))
    return made.QuantizeLinear(call["Ys"], call["Yz"])


# By i32 sums


@defines("QGemm", "A As Az B Bs Bz C Ys Yz", without_gradient=INTEGERS)
def qgemm(call: Call) -> Value:
    """(A @ B + C) * A scale * B scale * alpha, with i32 sums."""
    a, b = (
        call[name].permuted(1, 0) if call.integer(f"trans{name}") else call[name] for name in "AB"
    )
    sums = total(a.MatMulInteger(b, call.get("Az"), call.get("Bz")), call.get("C"))
    made = sums.typed("f32") * (call["As"] * call["Bs"]) * call.real("alpha", 1.0)
    return quantized(call, made, "A") if call.has("Ys") else made


def product(call: Call, a: Value, scale: Value, zero: Value | None) -> Value:
    """The matmul of a quantized value with weights `B` (scale `Bs`, zero point `Bz`)."""
    sums = a.MatMulInteger(call["B"], zero, call.get("Bz"))
    return _scaled(sums, scale, call["Bs"], call.get("bias"))


def _scaled(sums: Value, first: Value, second: Value, bias: Value | None) -> Value:
    """i32 sums times both scales plus bias, in f32, rounded once to the type of the scales."""
    scale = first.typed("f32") * second.typed("f32")
    made = total(sums.typed("f32") * scale, bias and bias.typed("f32"))
    return made.CastLike(first)


@defines("MatMulIntegerToFloat", "A B As Bs Az Bz bias")
def matmul_integer_to_float(call: Call) -> Value:
    return product(call, call["A"], call["As"], call.get("Az"))


@defines("DynamicQuantizeMatMul", "A B Bs Bz bias")
def dynamic_quantize_matmul(call: Call) -> Value:
    return product(call, *call["A"].several("DynamicQuantizeLinear", 3))


@defines("MatMulInteger16", "A B", without_gradient="it takes integers")
def matmul_integer16(call: Call) -> Value:
    return call["A"].typed("i32") @ call["B"].typed("i32")


@defines("QAttention",
         "input weights bias Xs Ws mask_index Xz Wz past")  # fmt: skip
def qattention(call: Call) -> Sequence[Value]:
    sums = call["input"].MatMulInteger(call["weights"], call.get("Xz"), call.get("Wz"))
    together = _scaled(sums, call["Xs"], call["Ws"], call["bias"])
    return attended_together(call, together, [call.size("weights", 1) // 3] * 3)


@defines("QEmbedLayerNormalization",
         "input_ids segment_ids words positions segments gamma beta mask "
         "wordss positionss segmentss gammas betas wordsz positionsz segmentsz gammaz betaz"
         )  # fmt: skip
def qembed_layer_normalization(call: Call) -> Sequence[Value]:
    segments = real(call, "segments") if call.has("segments") else None
    value = embedded(call, real(call, "words"), real(call, "positions"), segments)
    made, *_ = normalized(call, value, real(call, "gamma"), real(call, "beta"))
    return made, counted_mask(call)
