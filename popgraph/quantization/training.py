"""Rounding in place for training, and the quantized model that it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
from popgraph.quantization.preparation import (
    add_pairs,
    declare_oldest,
    fold_normalizations,
    unquantized,
)
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
from popgraph.quantization.static import quantize_static, rounded_values
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, RunError

SETTINGS = Settings(
    mode=STATIC,
    selection=Selection(),
    activation=Grid.of("u8", symmetric=False),
    weight=Grid.of("i8", symmetric=True),
    per_channel=True,
    quantize_conv_outputs=True,
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
MOMENTUM = {"momentum": 0.9}
"""The weight of earlier steps in the moving average of a range, as in BatchNormalization."""


def prepare_for_training(module: ModuleOp, store: WeightStore) -> tuple[ModuleOp, WeightStore]:
    """The model in an operator set that can quantize per channel; ModelError if nothing fits."""
    module, store = unquantized(module, store, SETTINGS.opset)
    add_pairs(module, store)
    if not sites_of(module, store, SETTINGS.selection).layers():
        raise ModelError(
            "no layer of the model can be quantized",
            hint="layers are Conv, ConvTranspose, MatMul and Gemm of f32 in the main graph, with "
            "constant weights or between activations",
        )
    return module, store


def with_rounding(module: ModuleOp, plain: ModuleOp, store: WeightStore) -> ModuleOp:
    """
    A copy of a model that rounds the values which `quantized_model` of its inference form rounds.

    x  ->  DequantizeLinear(QuantizeLinear(x, s, z), s, z) with s, z = FitGrid(x, range)

    `plain` is a copy of the model in inference form, which is changed. A range is an initializer,
    and a running statistic in training.
    """
    made = module.clone()
    fold_normalizations(plain, store)
    ranges = Ranges.of(sites_of(plain, store, SETTINGS.selection))
    sites = sites_of(made, store, SETTINGS.selection)
    _Rounding(Editor(made, store), sites, ranges).insert()
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
    names, ranges = Ranges.of(sites).names, {}
    if not any(values[held].any() for held in names.values()):
        raise RunError(
            "no step has run, so the ranges of values are unknown", "save", "fit runs steps"
        )
    for name, held in names.items():
        low, high = (float(end) for end in values[held])
        if not np.isfinite(high - low):
            raise RunError(
                f"the range of {name!r} is [{low}, {high}]",
                "save",
                "training has diverged: a smaller learning rate, or clip=1.0",
            )
        ranges[name] = low, high
    quantize_static(Editor(made, store), sites, ranges, SETTINGS)
    drop_unused(made, inputs=False)
    return made


@dataclass(frozen=True)
class Ranges:
    """The names of the ranges of all rounded values; values that share a scale share a range."""

    names: Mapping[str, str]
    """{name of a value: name of its range}."""
    results: frozenset[str]
    """Values that no operation reads in floats, such as results of convolutions."""

    @staticmethod
    def of(sites: Sites) -> Ranges:
        """The names for a model whose normalizations are folded."""
        values = rounded_values(sites, SETTINGS)
        names = dict[str, str]()
        for one in values:
            held = f"{value_name(sites.scale_of(_kept(one)))}_range"
            names[value_name(one)] = names[value_name(_kept(one))] = held
        return Ranges(names, frozenset(map(value_name, sites.results())))


def _kept(value: SSAValue) -> SSAValue:
    """The value before Dropout, which scales the kept elements in training only."""
    while isinstance(value.owner, SchemaOp) and value.owner.op_type == "Dropout":
        value = value.owner.operands[0]
    return value


def _source(site: Site) -> SSAValue:
    """The value that is rounded for a site."""
    return site.value if site.kind == WEIGHT else _kept(site.value)


class _Rounding:
    """Inserts the nodes that round operands."""

    def __init__(self, editor: Editor, sites: Sites, ranges: Ranges) -> None:
        self._editor, self._sites, self._names = editor, sites, ranges
        self._ranges: dict[str, SSAValue] = {}
        self._seen: dict[str, SSAValue] = {}
        """By name of a range, what the last value with this range has seen."""
        self._made: dict[tuple[SSAValue, int | None], SSAValue] = {}

    def insert(self) -> None:
        """Rounds the operands of all sites, and results for all of their readers."""
        ops = self._editor.graph.block.ops
        order = {op: number for number, op in enumerate(ops)}
        sites = [
            site for site in self._sites if site.kind != BIAS and site.node.op_type not in MOVEMENT
        ]  # Rounding commutes with movements, whose results are rounded.
        results = [
            value for op in ops for value in op.results if value_name(value) in self._names.results
        ]
        sources = [(_source(site), site.axis, site.kind) for site in sites]
        sources += [(value, None, ACTIVATION) for value in results]

        def place(source: tuple[SSAValue, int | None, str]) -> int:
            owner = source[0].owner
            return order[owner] if isinstance(owner, Operation) else -1

        # What a value has seen must be known where a later value has the same range.
        for source in sorted(sources, key=place):
            self._round(*source)
        for site in sites:
            set_operand(site.node, site.operand, self._made[_source(site), site.axis])
        for value in results:
            self._editor.redirect(value, self._made[value, None])

    def _round(self, value: SSAValue, axis: int | None, kind: str) -> None:
        """Adds the nodes that round a value."""
        if (value, axis) in self._made:
            return
        name, place, made = value_name(value), self._editor.after(value), value
        options: dict[str, object] = {} if axis is None else {"axis": axis}
        grid = self._fitted(value, kind, options)
        for operator, suffix in ROUNDING:
            (made,) = self._editor.node(operator, [made, *grid], f"{name}_{suffix}", place, options)
        self._made[value, axis] = made

    def _fitted(self, value: SSAValue, kind: str, options: dict[str, object]) -> list[SSAValue]:
        """The scale and the zero point of a value."""
        is_weight, name = kind == WEIGHT, value_name(value)
        grid = SETTINGS.weight if is_weight else SETTINGS.activation
        made = self._editor.node(
            FIT_GRID[1],
            [value] if is_weight else [value, *self._range(name)],
            f"{name}_scale",
            self._editor.after(value),
            {"to": dtypes.BY_NAME[grid.dtype].onnx, **(options if is_weight else MOMENTUM)},
            outputs=2 if is_weight else 3,
            domain=FIT_GRID[0],
        )
        if not is_weight:
            self._seen[self._names.names[name]] = made[2]
        return made[:2]

    def _range(self, value: str) -> list[SSAValue]:
        """The range of an activation, and what an earlier value with this range has seen."""
        name = self._names.names[value]
        if name not in self._ranges:
            self._ranges[name] = self._editor.constant(name, np.zeros(2, np.float32))
        return [self._ranges[name], *([self._seen[name]] if name in self._seen else [])]
