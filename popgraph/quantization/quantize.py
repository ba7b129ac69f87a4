"""`popgraph.quantize`: quantization of trained models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.registry import DEFAULT
from popgraph.builder.onnx.write import Proto, export_model
from popgraph.compiler.descriptions import spec
from popgraph.compiler.loading import Model
from popgraph.compiler.saving import save_model
from popgraph.dialects.onnx.containers import input_types, value_name
from popgraph.dialects.onnx.outputs import drop_unused
from popgraph.measure.timing import Contestant, race
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.quantization.blocks import is_matrix, quantize_blocks
from popgraph.quantization.dynamic import is_dynamic, quantize_dynamic
from popgraph.quantization.editing import Editor
from popgraph.quantization.feeds import WHERE, Data, Feed, checked, feeds
from popgraph.quantization.histograms import MINMAX, Histogram, Range, range_by
from popgraph.quantization.preparation import prepared
from popgraph.quantization.report import Difference, Layer, Report
from popgraph.quantization.settings import DYNAMIC, STATIC, Settings
from popgraph.quantization.sites import LAYERS, WEIGHT, Site, Sites, label, sites_of
from popgraph.quantization.static import quantize_static, rounded_values
from popgraph.quantization.weights import Key, Rounded, Weights, key_of
from popgraph.runner import Runner
from popgraph.start import compile as compiled
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, RunError
from popgraph.support.memo import cached_property
from popgraph.support.progress import report
from popgraph.support.spelling import setting

COMPARED = 2
"""Batches on which the errors of the layers are measured."""
SECONDS, ROUNDS = 1.0, 5
"""The least duration and number of rounds of `measure_time`."""


@dataclass
class Quantized:
    """A quantized model, and the report of its errors and gains."""

    module: ModuleOp
    compilation: Compilation
    report: Report

    @cached_property
    def model(self) -> Proto:
        """The model as an ONNX message."""
        return export_model(self.module, self.compilation.weights)

    def save(self, path: str | Path) -> None:
        """Writes the model as .onnx, or as .pgraph."""
        save_model(Path(path), self.module, self.compilation)

    def __str__(self) -> str:
        return str(self.report)

    def __rich__(self) -> object:
        return self.report.__rich__()


@check_types()
def quantize(
    model: Model,
    calibration: Data = None,
    *,
    mode: object = STATIC,
    per_channel: bool = True,
    activation_type: object = "uint8",
    weight_type: object = "int8",
    activation_symmetric: bool = False,
    weight_symmetric: bool = True,
    reduce_range: bool = False,
    quantize_conv_outputs: bool = True,
    calibrate_method: object = "minmax",
    percentile: float = 99.999,
    op_types_to_quantize: Iterable[str] | str | None = None,
    nodes_to_quantize: Iterable[str] | str | None = None,
    nodes_to_exclude: Iterable[str] | str | None = None,
    bits: int = 4,
    block_size: int = 32,
    quant_format: object = None,
    accuracy_level: int = 0,
    measure_errors: bool = True,
    measure_time: bool = False,
    threads: int = 1,
    backend: str = DEFAULT,
) -> Quantized:
    """
    Quantizes a trained model of floats; the result runs in onnxruntime as well.

    `mode` is "static" (int8 weights and activations, whose scales come from `calibration`),
    "dynamic" (int8 weights, and activations by their range in each run) or "weight_only" (weights
    of MatMul and Gemm in blocks of 4 or 8 `bits`).

    `calibration` is an array for the only input, a dict of arrays, an iterable of batches, or an
    object with `get_next` as onnxruntime's CalibrationDataReader. With it, the report has the
    errors of every layer, for the first batches.

    `quantize_conv_outputs` rounds the results of all convolutions: onnxruntime has no int8
    convolution with float results.

    `calibrate_method` is "minmax", "percentile", "entropy" or "mse". `nodes_to_quantize` and
    `nodes_to_exclude` are names or patterns (`block1.*`). Argument names, and the members of
    QuantType, CalibrationMethod and QuantFormat, are those of onnxruntime.quantization.
    """
    settings = Settings.of(
        mode=mode,
        per_channel=per_channel,
        activation_type=activation_type,
        weight_type=weight_type,
        activation_symmetric=activation_symmetric,
        weight_symmetric=weight_symmetric,
        reduce_range=reduce_range,
        quantize_conv_outputs=quantize_conv_outputs,
        calibrate_method=calibrate_method,
        percentile=percentile,
        op_types_to_quantize=op_types_to_quantize,
        nodes_to_quantize=nodes_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
        bits=bits,
        block_size=block_size,
        quant_format=quant_format,
        accuracy_level=accuracy_level,
    )
    if calibration is None and settings.mode == STATIC:
        raise RunError(
            "static quantization has no calibration data",
            "quantize",
            f"pass samples of the inputs, or {setting('mode', DYNAMIC)}, which needs none",
        )
    work = Work.of(model, settings, threads, backend)
    return work.run(calibration, errors=measure_errors, times=measure_time)


@dataclass
class Work:
    """The quantization of one model."""

    settings: Settings
    module: ModuleOp
    compilation: Compilation
    sites: Sites
    threads: int
    backend: str
    plain: Proto = field(init=False)
    """The model in floats after its preparation."""
    report: Report = field(init=False)
    _plain_runner: Runner | None = None
    """Computes the values to calibrate and to compare, in floats."""

    def __post_init__(self) -> None:
        self.plain = export_model(self.module, self.compilation.weights)
        self.report = Report(self.settings.mode)

    @staticmethod
    def of(model: Model, settings: Settings, threads: int, backend: str) -> Work:
        """Prepares the model and selects its sites."""
        module, store = prepared(model, settings.opset)
        sites = sites_of(module, store, settings.selection)
        made = Work(settings, module, Compilation(store), sites, threads, backend)
        if not made.layer_sites():
            wanted = "MatMul or Gemm" if settings.mode not in (STATIC, DYNAMIC) else "layer"
            raise ModelError(
                f"no {wanted} of the model can be quantized in mode {settings.mode!r}",
                hint="layers need f32 operands and constant weights, must be in the main graph, "
                "and must not be excluded",
            )
        return made

    def layer_sites(self) -> list[Site]:
        """The sites in layers that the mode rounds."""
        if self.settings.mode == STATIC:
            return [site for site in self.sites if site.node.op_type in LAYERS]
        fits = is_dynamic if self.settings.mode == DYNAMIC else is_matrix
        return [site for site in self.sites if fits(site)]

    def run(self, data: Data, *, errors: bool, times: bool) -> Quantized:
        """Calibrates, rewrites the module and measures."""
        planned = [Planned.of(site, self.settings) for site in self._one_per_layer()]
        chosen = [one.output for one in planned]
        kept, ranges = list[Feed](), dict[str, Range]()
        if data is not None:
            kept, ranges = self._calibrated(data, chosen if errors else ())
        self.report.skipped = [
            label(op)
            for op in self.sites.graph.nodes
            if op.op_type in LAYERS and not op.domain and op.output_names[0] not in chosen
        ]
        weights = self._rewritten(ranges)
        drop_unused(self.module, inputs=False)
        made = Quantized(self.module, self.compilation, self.report)
        self._note_bytes(weights, made.model)
        noise: Mapping[str, Difference] = {}
        if kept and errors:
            noise = self._compared(kept, made.model, chosen)
            outputs = [one.name for one in self.plain.graph.output]
            self.report.outputs = {name: noise[name] for name in outputs}
        self.report.layers = [
            one.layer(weights.made.get(one.key) if one.key else None, noise.get(one.output))
            for one in planned
        ]
        if times:
            self._measure_time(kept, made.model)
        return made

    def _one_per_layer(self) -> list[Site]:
        """A site of each quantized layer: its weight, if it has one."""
        found = {site.node: site for site in self.layer_sites()}
        found |= {site.node: site for site in self.layer_sites() if site.kind == WEIGHT}
        return [*found.values()]

    def _calibrated(
        self, data: Data, compared: Sequence[str]
    ) -> tuple[list[Feed], dict[str, Range]]:
        """
        The first batches, and the range of each activation over all batches.

        The program of the run also returns the values to be `compared`.
        """
        is_static = self.settings.mode == STATIC
        values = rounded_values(self.sites, self.settings) if is_static else []
        names = [*map(value_name, values)]
        types = input_types(self.module)
        batches = feeds(data, {name: spec(name, type_) for name, type_ in types.items()})
        kept = list[Feed]()
        if not names:
            kept = [checked(one, at) for at, one in enumerate(islice(batches, COMPARED))]
            self.report.batches = len(kept)
            _check_count(len(kept), data)
            return kept, {}
        runner = self._plain_runner = self._compiled(self.plain, [*names, *compared])
        counted = self.settings.method != MINMAX
        found = {name: Histogram(counted) for name in names}
        for number, feed in enumerate(batches):
            report(f"calibrating: batch {number + 1}")
            results = runner(checked(feed, number))
            for name, histogram in found.items():
                histogram.add(_finite(results[name], name, number))
            if number < COMPARED:
                kept.append(feed)
            self.report.batches += 1
        report("")
        _check_count(self.report.batches, data)
        return kept, {
            name: range_by(
                self.settings.method, one, self.settings.activation, self.settings.percentile
            )
            for name, one in found.items()
        }

    def _compiled(self, model: Proto, names: Iterable[str] = ()) -> Runner:
        """A runner of a model, with further values as outputs."""
        own = {one.name for one in model.graph.output}
        extra = tuple(name for name in dict.fromkeys(names) if name not in own)
        return compiled(
            model,
            threads=self.threads,
            backend=self.backend,
            options=Options(extra_outputs=extra),
            quick=False,
        )

    def _rewritten(self, ranges: Mapping[str, Range]) -> Weights:
        """Rewrites the module in the mode."""
        editor = Editor(self.module, self.compilation.weights)
        if self.settings.mode == STATIC:
            return quantize_static(editor, self.sites, ranges, self.settings)
        if self.settings.mode == DYNAMIC:
            return quantize_dynamic(editor, self.sites, self.settings)
        return quantize_blocks(editor, self.sites, self.settings)

    def _note_bytes(self, weights: Weights, model: Proto) -> None:
        rounded = weights.made.values()
        before = sum(one.plain.nbytes for one in rounded)
        self.report.weight_bytes = before, sum(one.bytes for one in rounded)
        self.report.model_bytes = self.plain.ByteSize(), model.ByteSize()

    def _compared(
        self, kept: Iterable[Feed], model: Proto, names: Iterable[str]
    ) -> dict[str, Difference]:
        """The differences of values and outputs between both models, by name."""
        every = [*dict.fromkeys([*names, *(one.name for one in self.plain.graph.output)])]
        plain_runner = self._plain_runner or self._compiled(self.plain, every)
        runners = (plain_runner, self._compiled(model, every))
        found = {name: Difference() for name in every}
        for feed in kept:
            plain, rounded = (run(feed) for run in runners)
            for name, one in found.items():
                one.add(plain[name], rounded[name])
        return found

    def _measure_time(self, kept: Sequence[Feed], model: Proto) -> None:
        """Times both models on the first batch, in interleaved rounds."""
        if not kept:
            raise RunError(
                "times cannot be measured without data", "measure_time", "pass calibration data"
            )
        runners = [self._compiled(one) for one in (self.plain, model)]
        raced = [
            Contestant(name, partial(run, kept[0]))
            for name, run in zip(("float", "quantized"), runners, strict=True)
        ]
        race(raced, threads=self.threads, seconds=SECONDS, rounds=ROUNDS)
        before, after = (one.best for one in raced)
        self.report.seconds = before, after


@dataclass(frozen=True)
class Planned:
    """A layer before its rewriting."""

    name: str
    operator: str
    output: str
    key: Key | None
    """Names its weight in `Weights.made`."""

    @staticmethod
    def of(site: Site, settings: Settings) -> Planned:
        op = site.node
        key = key_of(site, per_channel=settings.per_channel) if site.kind == WEIGHT else None
        return Planned(label(op), op.op_type, op.output_names[0], key)

    def layer(self, weight: Rounded | None, noise: Difference | None) -> Layer:
        """The row of the report."""
        return Layer(
            self.name,
            self.operator,
            weight.grid.dtype if weight else "",
            Difference.of(weight.plain, weight.restored).sqnr if weight else None,
            noise.sqnr if noise else None,
            noise.largest if noise else None,
        )


def _finite(array: Array, name: str, number: int) -> Array:
    """The array; RunError if a value of the model is not finite."""
    if not np.isfinite(array).all():
        kind = "NaN" if np.isnan(array).any() else "infinity"
        raise RunError(
            f"value {name!r} is {kind} in batch {number}",
            WHERE,
            "the model overflows on this batch: check the data, or leave it out",
        )
    return array


def _check_count(count: int, data: Data) -> None:
    """RunError for data without a batch."""
    if not count:
        is_reader = hasattr(data, "get_next")
        raise RunError(
            "the calibration data are empty",
            WHERE,
            "the reader is at its end: call its rewind()" if is_reader else "pass some batches",
        )
