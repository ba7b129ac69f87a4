"""Dynamic quantization: activations are rounded by their range in each run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.types import dims
from popgraph.quantization.editing import Editor
from popgraph.quantization.settings import Settings
from popgraph.quantization.sites import WEIGHT, Site, Sites
from popgraph.quantization.weights import Weights
from popgraph.support import dtypes
from popgraph.support.arrays import Array

F32 = dtypes.BY_NAME["f32"].onnx
FITTING = ("MatMul", "Gemm", "Conv")
"""Operators with a form on integers, ConvTranspose has none."""


def quantize_dynamic(editor: Editor, sites: Sites, settings: Settings) -> Weights:
    """
    y = matmul(x, w)  ->  y = cast(MatMulInteger(DynamicQuantizeLinear(x), w_quantized)) * scales

    The same for Conv. Only for constant second operands.
    """
    made = Dynamic(editor, Weights(editor, settings.weight, settings.per_channel))
    for site in [one for one in sites if is_dynamic(one)]:
        made.rewrite(site)
    return made.weights


def is_dynamic(site: Site) -> bool:
    """Whether the weight of a site is quantized in dynamic mode."""
    op = site.node
    if site.kind != WEIGHT or site.operand != 1 or op.op_type not in FITTING:
        return False
    if op.op_type != "Gemm":
        return True
    numbers, bias = op.attribute_values(), op.input_values()[2:]
    return not numbers["transA"] and numbers["alpha"] == 1 and (not bias or numbers["beta"] == 1)


@dataclass
class Dynamic:
    """The rewriting of one model."""

    editor: Editor
    weights: Weights
    _rounded: dict[SSAValue, list[SSAValue]] = field(default_factory=dict)
    _made: dict[tuple[object, ...], tuple[SSAValue, SSAValue, SSAValue | None]] = field(
        default_factory=dict
    )
    """The constants of each weight, by the form that an operator takes."""

    def rewrite(self, site: Site) -> None:
        """Replaces a layer."""
        op, editor = site.node, self.editor
        name, inputs = op.output_names[0], op.input_values()
        x, bias = inputs[0], inputs[2] if len(inputs) > 2 else None
        assert x is not None, "a layer has an operand"
        is_conv = op.op_type == "Conv"
        # ConvInteger of onnxruntime takes unsigned weights with a single zero point.
        shift = 128 if is_conv and self.weights.grid.dtype == "i8" else 0
        whole, scale, zero = self._constants(site, shift)
        values, step, point = self._activation(x)
        operator = "ConvInteger" if is_conv else "MatMulInteger"
        given = [values, whole, point, *([] if zero is None else [zero])]
        copied = dict(op.onnx_attributes()) if is_conv else {}
        sums = editor.node(operator, given, f"{name}_sums", op, copied)
        wide = editor.node("Cast", sums, f"{name}_cast", op, {"to": F32})
        scales = editor.node("Mul", [step, scale], f"{name}_scales", op)
        made = editor.node("Mul", [*wide, *scales], f"{name}_scaled", op)
        if bias is not None:
            made = editor.node("Add", [*made, self._spread(bias, op)], f"{name}_biased", op)
        editor.substitute(op, made[0])

    def _activation(self, x: SSAValue) -> list[SSAValue]:
        """The integers, the scale and the zero point of an operand."""
        if x not in self._rounded:
            name = f"{value_name(x)}_quantized"
            place = self.editor.after(x)
            self._rounded[x] = self.editor.node(
                "DynamicQuantizeLinear", [x], name, place, outputs=3
            )
        return self._rounded[x]

    def _constants(self, site: Site, shift: int) -> tuple[SSAValue, SSAValue, SSAValue | None]:
        """The weight in integers, its scales, which broadcast to the result, and its zero point."""
        op = site.node
        transposes = op.op_type == "Gemm" and bool(op.attribute_values()["transB"])
        key = (*self.weights.key(site), transposes, shift)
        if key not in self._made:
            self._made[key] = self._rounded_constants(site, shift, transposes)
        return self._made[key]

    def _rounded_constants(
        self, site: Site, shift: int, transposes: bool
    ) -> tuple[SSAValue, SSAValue, SSAValue | None]:
        op, editor, grid = site.node, self.editor, self.weights.grid
        if op.op_type == "Conv":
            grid = replace(grid, symmetric=True)
        made = self.weights.of(site, grid=grid)
        whole, scale, zero = made.whole + shift, made.scale, made.zero + shift
        if op.op_type == "Conv":
            scale = scale if scale.ndim == 0 else scale.reshape(-1, *(1,) * (whole.ndim - 2))
        else:
            if transposes:
                whole = np.ascontiguousarray(whole.T)
            scale, zero = (one if one.ndim == 0 else one.reshape(-1) for one in (scale, zero))
        numpy = np.dtype(np.uint8) if shift else grid.numpy
        name = value_name(site.value)
        point: Array | None = None if not shift and np.all(zero == 0) else zero
        if point is not None and np.all(point == point.flat[0]):
            point = np.asarray(point.flat[0])
        return (
            editor.constant(f"{name}_quantized", whole.astype(numpy)),
            editor.constant(f"{name}_scale", scale),
            None if point is None else editor.constant(f"{name}_zero_point", point.astype(numpy)),
        )

    def _spread(self, bias: SSAValue, op: OnnxOp) -> SSAValue:
        """A bias that broadcasts to the result: one number per channel for convolutions."""
        if op.op_type != "Conv":
            return bias
        rank = len(dims(op.input_values()[1].type) or ())  # type: ignore[union-attr]
        name = value_name(bias)
        shape = self.editor.constant(f"{name}_shape", np.array([1, -1, *[1] * (rank - 2)]))
        return self.editor.node("Reshape", [bias, shape], f"{name}_spread", op)[0]
