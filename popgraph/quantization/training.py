"""Rounding in place for training, and the quantized model that it trains."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.onnx import SchemaOp
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.custom import FIT_GRID
from popgraph.dialects.onnx.outputs import drop_unused
from popgraph.dialects.program import WeightStore
from popgraph.quantization.editing import Editor, set_operand
from popgraph.quantization.grids import Grid
from popgraph.quantization.histograms import MINMAX
from popgraph.quantization.preparation import declare_oldest, fold_normalizations, unquantized
from popgraph.quantization.settings import QDQ, STATIC, Settings
from popgraph.quantization.sites import (
    ACTIVATION,
    BIAS,
    MOVEMENT,
    WEIGHT,
    Selection,
    Site,
    Sites,
    sites_of,
)
from popgraph.quantization.static import quantize_static
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, RunError

SETTINGS = Settings(
    mode=STATIC,
    selection=Selection(),
    activation=Grid.of("u8", symmetric=False),
    weight=Grid.of("i8", symmetric=True),
    per_channel=True,
    method=MINMAX,
    percentile=100,
    bits=8,
    block_size=0,
    format=QDQ,
    accuracy_level=0,
)
"""Weights of int8 per channel, activations of uint8: the defaults of `popgraph.quantize`."""
ROUNDING = (("QuantizeLinear", "quantized"), ("DequantizeLinear", "dequantized"))
"""The nodes that round, and the ends of the names of their results."""
MOMENTUM = 0.9
"""The weight of earlier steps in the moving average of a range, as in BatchNormalization."""


def prepare_for_training(module: ModuleOp, store: WeightStore) -> tuple[ModuleOp, WeightStore]:
    """The model in an operator set that can quantize per channel; ModelError if nothing fits."""
    module, store = unquantized(module, store, SETTINGS.opset)
    if not sites_of(module, store, SETTINGS.selection).layers():
        raise ModelError(
            "no layer of the model can be quantized",
            hint="layers are Conv, ConvTranspose, MatMul and Gemm of f32 in the main graph, with "
            "constant weights or between activations",
        )
    return module, store


def with_rounding(module: ModuleOp, store: WeightStore) -> ModuleOp:
    """
    A copy of a model whose quantized operands are rounded in place.

    x  ->  DequantizeLinear(QuantizeLinear(x, s, z), s, z) with s, z = FitGrid(x, range)

    A range is an initializer, and a running statistic in training.
    """
    made = module.clone()
    sites = sites_of(made, store, SETTINGS.selection)
    _Rounding(Editor(made, store), sites).insert()
    return made


def quantized_model(module: ModuleOp, store: WeightStore, values: Mapping[str, Array]) -> ModuleOp:
    """
    A trained model in inference form, quantized with the ranges among `values`.

    Batch normalization is folded into layers first: with a scale per channel, the integers of the
    weights stay those of training, up to their sign.
    """
    made = module.clone()
    declare_oldest(made, SETTINGS.opset)
    fold_normalizations(made, store)
    sites = sites_of(made, store, SETTINGS.selection)
    ranges = {}
    for site in sites.of_kind(ACTIVATION):
        name = range_name(sites, site.value)
        low, high = (float(end) for end in values[name])
        if not np.isfinite(high - low):
            raise RunError(
                f"the range of {value_name(site.value)!r} is [{low}, {high}]",
                "save",
                "training has diverged: a smaller learning rate, or clip=1.0",
            )
        ranges[value_name(site.value)] = low, high
    quantize_static(Editor(made, store), sites, ranges, SETTINGS)
    drop_unused(made, inputs=False)
    return made


def range_name(sites: Sites, value: SSAValue) -> str:
    """The name of the range of a value; values that share a scale share it."""
    return f"{value_name(sites.scale_of(_kept(value)))}_range"


def _kept(value: SSAValue) -> SSAValue:
    """The value before Dropout, which scales what it keeps in training only."""
    while isinstance(value.owner, SchemaOp) and value.owner.op_type == "Dropout":
        value = value.owner.operands[0]
    return value


def _source(site: Site) -> SSAValue:
    """The value that is rounded for a site."""
    return site.value if site.kind == WEIGHT else _kept(site.value)


class _Rounding:
    """Inserts the nodes that round operands."""

    def __init__(self, editor: Editor, sites: Sites) -> None:
        self._editor, self._sites = editor, sites
        self._ranges: dict[str, SSAValue] = {}
        self._seen: dict[str, SSAValue] = {}
        """By name of a range, what the last value with this range has seen."""
        self._made: dict[tuple[SSAValue, int | None], SSAValue] = {}

    def insert(self) -> None:
        order = {op: number for number, op in enumerate(self._editor.graph.block.ops)}
        rounded = [
            site for site in self._sites if site.kind != BIAS and site.node.op_type not in MOVEMENT
        ]  # Rounding commutes with movements, whose results are rounded.

        def place(site: Site) -> int:
            owner = _source(site).owner
            return order[owner] if isinstance(owner, Operation) else -1

        # What a value has seen must be known where a later value has the same range.
        edits = [(site, self._rounded(site)) for site in sorted(rounded, key=place)]
        for site, value in edits:
            set_operand(site.node, site.operand, value)

    def _rounded(self, site: Site) -> SSAValue:
        """The rounded operand of a site."""
        value = _source(site)
        axis: dict[str, object] = {} if site.axis is None else {"axis": site.axis}
        key = value, site.axis
        if key not in self._made:
            name, place = value_name(value), self._editor.after(value)
            grid = self._fitted(site, value, f"{name}_scale", axis)
            for operator, suffix in ROUNDING:
                given = [value, *grid]
                (value,) = self._editor.node(operator, given, f"{name}_{suffix}", place, axis)
            self._made[key] = value
        return self._made[key]

    def _fitted(
        self, site: Site, value: SSAValue, name: str, axis: dict[str, object]
    ) -> list[SSAValue]:
        """The scale and the zero point of a value."""
        is_weight = site.kind == WEIGHT
        grid = SETTINGS.weight if is_weight else SETTINGS.activation
        made = self._editor.node(
            FIT_GRID[1],
            [value] if is_weight else [value, *self._range(value)],
            name,
            self._editor.after(value),
            {"to": dtypes.BY_NAME[grid.dtype].onnx, "momentum": MOMENTUM, **axis},
            outputs=2 if is_weight else 3,
            domain=FIT_GRID[0],
        )
        if not is_weight:
            self._seen[range_name(self._sites, value)] = made[2]
        return made[:2]

    def _range(self, value: SSAValue) -> list[SSAValue]:
        """The range of an activation, and what an earlier value with this range has seen."""
        name = range_name(self._sites, value)
        if name not in self._ranges:
            self._ranges[name] = self._editor.constant(name, np.zeros(2, np.float32))
        return [self._ranges[name], *([self._seen[name]] if name in self._seen else [])]
