"""Static quantization: QuantizeLinear and DequantizeLinear with scales of the calibration."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.containers import value_name
from popgraph.quantization.editing import Editor, set_operand
from popgraph.quantization.grids import Grid
from popgraph.quantization.histograms import Range
from popgraph.quantization.settings import Settings
from popgraph.quantization.sites import ACTIVATION, WEIGHT, Site, Sites
from popgraph.quantization.weights import Weights, scale_for_bias, stored
from popgraph.support.arrays import Array

Scale = tuple[Array, Array]
"""A scale (f32) and a zero point, both of rank 0."""


def quantize_static(
    editor: Editor, sites: Sites, ranges: Mapping[str, Range], settings: Settings
) -> Weights:
    """Rounds the operands of all sites; `ranges` has the range of each activation by name."""
    weights = Weights(editor, settings.weight, settings.per_channel)
    activations = [(site, site.value) for site in sites.of_kind(ACTIVATION)]
    values = rounded_values(sites, settings)
    scales = _scales(sites, values, ranges, settings.activation)
    edits = list[tuple[Site, SSAValue]]()  # Made later: scales are found by the operands.
    for site in sites.of_kind(WEIGHT):
        other, bias = site.node.input_values()[1 - site.operand], sites.bias_of(site.node)
        assert other is not None, "products have two operands"
        least = None
        if bias is not None and other in scales:
            least = scale_for_bias(weights.array(bias.value), scales[other][0])
            if weights.key(site)[1] is None:
                least = np.max(least, initial=0.0)
        made = weights.of(site, least)
        edits.append((site, weights.dequantized(site, made)))
        if bias is not None and other in scales:
            rounded = weights.bias(bias, scales[other][0], made)
            edits += [] if rounded is None else [(bias, rounded)]
    results = {*sites.results()} if settings.quantize_conv_outputs else set()
    made_of = {one: _rounded(editor, one, scales[one], settings.activation) for one in values}
    edits += [(site, made_of[value]) for site, value in activations]
    for site, value in edits:
        set_operand(site.node, site.operand, value)
    for value in results:
        editor.redirect(value, made_of[value])
    return weights


def rounded_values(sites: Sites, settings: Settings) -> list[SSAValue]:
    """The values that are computed at run time and rounded."""
    values = [site.value for site in sites.of_kind(ACTIVATION)]
    if settings.quantize_conv_outputs:
        values += sites.results()
    return [*dict.fromkeys(values)]


def _scales(
    sites: Sites, values: list[SSAValue], ranges: Mapping[str, Range], grid: Grid
) -> dict[SSAValue, Scale]:
    """The scale of each activation; values that share one get a range that holds them all."""
    joined: dict[SSAValue, Range] = {}
    for value in values:
        low, high = ranges[value_name(value)]
        group = sites.scale_of(value)
        least, most = joined.get(group, (low, high))
        joined[group] = (min(low, least), max(high, most))
    fitted = {
        group: grid.fitted(np.array(low), np.array(high)) for group, (low, high) in joined.items()
    }
    return {value: fitted[sites.scale_of(value)] for value in values}


def _rounded(editor: Editor, value: SSAValue, scale: Scale, grid: Grid) -> SSAValue:
    """x  ->  DequantizeLinear(QuantizeLinear(x))"""
    name, place = value_name(value), editor.after(value)
    parameters = [
        editor.constant(f"{name}_scale", scale[0]),
        editor.constant(f"{name}_zero_point", stored(scale[1], grid)),
    ]
    whole = editor.node("QuantizeLinear", [value, *parameters], f"{name}_quantized", place)
    made = editor.node("DequantizeLinear", [*whole, *parameters], f"{name}_dequantized", place)
    return made[0]
