"""Products and convolutions of onnxruntime, with what is fused to them."""

from __future__ import annotations

from popgraph.operators.microsoft.activations import activated
from popgraph.operators.microsoft.body import Value, total
from popgraph.operators.microsoft.call import Call, defines

WINDOW = "auto_pad dilations group kernel_shape pads strides"
"""The attributes of a convolution."""


def _turned(call: Call, name: str) -> Value:
    """An operand of a product, with its last axes and its first ones changed."""
    value = call[name]
    by_rows, by_batch = call.integer(f"trans{name}"), call.integer(f"transBatch{name}")
    if not (by_rows or by_batch) or call.rank(name) < 2:
        return value
    order = list(range(call.rank(name)))
    if by_batch:
        order = [*order[1:-1], 0, order[-1]]
    if by_rows:
        order[-2:] = order[:-3:-1]
    return value.permuted(*order)


@defines("FusedMatMul", "A B")
@defines("TransposeMatMul", "A B")
def fused_matmul(call: Call) -> Value:
    return (_turned(call, "A") @ _turned(call, "B")).scaled(call.real("alpha", 1.0))


@defines("FusedGemm", "A B C")
def fused_gemm(call: Call) -> Value:
    given = call.copied("alpha beta transA transB")
    numbers = [call.real(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return activated(call, call["A"].Gemm(call["B"], call.get("C"), **given), numbers)


@defines("FusedConv", "X W B Z")
def fused_conv(call: Call) -> Value:
    made = call["X"].Conv(call["W"], call.get("B"), **call.copied(WINDOW))
    return activated(call, total(made, call.get("Z")), call.reals("activation_params"))


@defines("NhwcConv", "X W B Z")
@defines("NhwcFusedConv", "X W B Z")
def nhwc_conv(call: Call) -> Value:
    """Channels are the last axis of images and results; filters are as those of Conv."""
    rank, filters = call.rank("X"), call["W"]
    images = channels_first(call["X"], rank)
    made = images.Conv(filters, call.get("B"), **call.copied(WINDOW))
    added = total(channels_last(made, rank), call.get("Z"))
    return activated(call, added, call.reals("activation_params"))


def channels_first(images: Value, rank: int) -> Value:
    return images.permuted(0, rank - 1, *range(1, rank - 1))


def channels_last(images: Value, rank: int) -> Value:
    return images.permuted(0, *range(2, rank), 1)
