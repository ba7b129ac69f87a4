"""The arguments of `popgraph.quantize`, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from popgraph.quantization.grids import Grid, named
from popgraph.quantization.histograms import METHODS
from popgraph.quantization.sites import Selection
from popgraph.support.errors import ArgumentError
from popgraph.support.names import Names

STATIC, DYNAMIC, WEIGHT_ONLY = "static", "dynamic", "weight_only"
MODES = Names(
    "mode", {STATIC: "qdq", DYNAMIC: "", WEIGHT_ONLY: "weightonly weights weights4 nbits"}
)
NBITS, QDQ = "MatMulNBits", "QDQ"
FORMATS = Names("format", {NBITS: "QOperator", QDQ: ""})
"""Forms of weights in blocks, with their names in onnxruntime's `QuantFormat`."""
OPSETS = {STATIC: 13, DYNAMIC: 13, WEIGHT_ONLY: 1}
"""The first opset with scales per channel, or with the operators of a mode."""
NARROW_OPSET = 21
"""The first opset with 4-bit and 16-bit types, and with blocks."""


@dataclass(frozen=True)
class Settings:
    """The form of a quantized model."""

    mode: str
    selection: Selection
    activation: Grid
    weight: Grid
    per_channel: bool
    method: str
    percentile: float
    bits: int
    block_size: int
    format: str
    accuracy_level: int
    quantize_conv_outputs: bool = False
    """Whether results of convolutions are rounded for all readers."""

    @staticmethod
    def of(
        *,
        mode: object,
        per_channel: bool,
        activation_type: object,
        weight_type: object,
        activation_symmetric: bool,
        weight_symmetric: bool,
        reduce_range: bool,
        quantize_conv_outputs: bool,
        calibrate_method: object,
        percentile: float,
        op_types_to_quantize: Iterable[str] | str | None,
        nodes_to_quantize: Iterable[str] | str | None,
        nodes_to_exclude: Iterable[str] | str | None,
        bits: int,
        block_size: int,
        quant_format: object,
        accuracy_level: int,
    ) -> Settings:
        """From the arguments of `quantize`; ArgumentError for one that is wrong."""
        chosen = _named(MODES, mode, "mode")
        blocks = chosen == WEIGHT_ONLY
        weight = named(weight_type, "weight_type", "i8 u8")
        activation = named(activation_type, "activation_type", "u8 i8 u16 i16")
        if not 0 < percentile <= 100:
            raise ArgumentError(
                f"percentile is {percentile}", "percentile", "a number such as 99.99, at most 100"
            )
        if blocks:
            _check_blocks(bits, block_size, accuracy_level)
            weight = ("i" if weight_symmetric else "u") + str(bits)
        return Settings(
            chosen,
            Selection.of(op_types_to_quantize, nodes_to_quantize, nodes_to_exclude),
            Grid.of(activation, symmetric=activation_symmetric),
            Grid.of(weight, symmetric=weight_symmetric, reduced=reduce_range and not blocks),
            per_channel or blocks,
            _named(METHODS, calibrate_method, "calibrate_method"),
            percentile,
            bits,
            block_size,
            _format(chosen, quant_format),
            accuracy_level,
            quantize_conv_outputs,
        )

    @property
    def opset(self) -> int:
        """The oldest operator set that the quantized model can have."""
        wide = self.mode == STATIC and self.activation.dtype.endswith("16")
        blocks = self.mode == WEIGHT_ONLY and self.format == QDQ
        return NARROW_OPSET if wide or blocks else OPSETS[self.mode]


def _named(names: Names, given: object, argument: str) -> str:
    """The name that a string or a member of an enumeration of onnxruntime means."""
    text = str(getattr(given, "name", given))
    found = names.find(text)
    if found is None:
        raise ArgumentError(names.unknown(text)[0], argument, names.hint(text))
    return found


def _format(mode: str, given: object) -> str:
    """The format of a mode; ArgumentError for one that it does not have."""
    has = {STATIC: (QDQ,), DYNAMIC: (NBITS,), WEIGHT_ONLY: (NBITS, QDQ)}[mode]
    found = has[0] if given is None else _named(FORMATS, given, "quant_format")
    if found not in has:
        what = "QDQ" if found == QDQ else "operators of integers (QOperator)"
        raise ArgumentError(
            f"{mode} quantization has no form with {what}",
            "quant_format",
            "leave it out: only weight_only has a choice",
        )
    return found


def _check_blocks(bits: int, block_size: int, accuracy_level: int) -> None:
    if bits not in (4, 8):
        raise ArgumentError(f"weights of {bits} bits in blocks", "bits", "4 or 8")
    if block_size < 16 or block_size & (block_size - 1):
        raise ArgumentError(
            f"block_size is {block_size}", "block_size", "a power of two, at least 16"
        )
    if accuracy_level not in range(5):
        raise ArgumentError(
            f"accuracy_level is {accuracy_level}",
            "accuracy_level",
            "0 for f32 activations, 4 to permit int8",
        )
