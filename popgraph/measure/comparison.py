"""Compares a compiled model with other runtimes: time in interleaved rounds, and accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import Float32Type, Float64Type, ModuleOp, TensorType
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from popgraph import compiler
from popgraph.backends.reference import evaluate
from popgraph.backends.registry import DEFAULT
from popgraph.builder.onnx.write import export_model
from popgraph.dialects.levels import level_of
from popgraph.dialects.program import BlobAttr, DataAttr, WeightStore
from popgraph.measure.inputs import random_inputs
from popgraph.measure.peak import peak
from popgraph.measure.peers import PEERS, ready
from popgraph.measure.program_work import ProgramWork, work_of_programs
from popgraph.measure.timing import Contestant, race
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsupportedError

WIDE = np.dtype(np.float64)


def exact(
    module: ModuleOp, compilation: Compilation, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """
    The outputs of a float model for these inputs, computed in f64 by NumPy.

    Floats are widened at the graphcore level, before any pass rearranges arithmetic, and the
    reference backend runs the result: no kernel, schedule or C compiler is involved.
    """
    wide = module.clone()
    if level_of(wide) == "onnx":
        compiler.lower(wide, compilation, until=OnnxToGraphcore.name)
    widen(wide, compilation.weights)
    wide_inputs = {name: as_wide(array) for name, array in inputs.items()}
    return evaluate(wide, wide_inputs, compilation.weights)[0]


def as_wide(array: Array) -> Array:
    return array.astype(WIDE) if array.dtype == np.float32 else array


def widen(module: ModuleOp, weights: WeightStore) -> None:
    """Converts every f32 of a graphcore module, types and literals, to f64."""
    for op in module.walk():
        for name, attribute in op.properties.items():
            op.properties[name] = _wide(attribute, weights)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.args:
                    Rewriter.replace_value_with_new_type(argument, _wide(argument.type, weights))
        for result in op.results:
            Rewriter.replace_value_with_new_type(result, _wide(result.type, weights))
    module.verify()


def _wide(attribute: Attribute, weights: WeightStore) -> Attribute:
    match attribute:
        case Float32Type():
            return Float64Type()
        case TensorType(element_type=Float32Type()):
            return TensorType(Float64Type(), attribute.get_shape())
        case DataAttr() | BlobAttr() if attribute.type.element_type == Float32Type():
            return weights.attribute(weights.array(attribute).astype(WIDE))
    return attribute


def error(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The largest difference of any output, relative to the largest element of that output."""
    return max((_error(found[name], wanted) for name, wanted in expected.items()), default=0.0)


def _error(found: Array, wanted: Array) -> float:
    if wanted.dtype != WIDE or not wanted.size:
        return 0.0
    scale = float(np.abs(wanted).max())
    return float(np.abs(found.astype(WIDE) - wanted.astype(WIDE)).max()) / (scale or 1.0)


OURS, PEAK = "popgraph", "peak"


@dataclass(frozen=True)
class Row:
    """The time of one runtime for one run of the model."""

    name: str
    best_ms: float = 0.0
    median_ms: float = 0.0
    ratio: float | None = None
    """Its time divided by ours; above 1, PopGraph is faster."""
    gflops: float = 0.0
    """Rate for the multiply-adds of the model, even if the runtime computes fewer (Winograd)."""
    share_of_peak: float | None = None
    error: float | None = None
    """Largest difference from the f64 result, relative to the largest output."""
    refusal: str = ""
    """Why the runtime did not run the model."""


@dataclass(frozen=True)
class Result:
    """A finished comparison."""

    model: str
    threads: int
    gflop: float
    """Work of one run."""
    bytes_moved: int
    """Bytes that our kernels read and write; each operand and result counts once."""
    arena: int
    """Bytes of the arena of intermediate values."""
    largest_live_set: int
    """Peak bytes of live intermediate values: a lower bound of the arena."""
    peak_gflops: float
    rows: list[Row]


class Comparison:
    """A compiled model, and the runtimes to compare it with."""

    def __init__(
        self,
        name: str,
        module: ModuleOp,
        compilation: Compilation,
        threads: int,
        options: Options | None = None,
    ) -> None:
        self._name, self._threads = name, threads
        self._options = compiler.for_this_machine(options or Options(), threads)
        self._module, self._compilation = module, compilation
        self._proto: Any = None
        self._run: Callable[[Mapping[str, Array]], dict[str, Array]]
        if level_of(module) == "onnx":
            self._proto = export_model(module, compilation.weights)
            self._run = compiler.compile(self._proto, threads=threads, options=self._options)
        else:
            self._run = compiler.build(
                module.clone(), compilation, self._options, threads=threads
            ).run
        self._inputs = random_inputs(module)
        self._outputs: dict[str, Callable[[], Mapping[str, Array]]] = {OURS: self.ours}
        self._refusals: dict[str, str] = {}
        call, self._peak_work = peak(threads)
        self._contestants = [Contestant(PEAK, call), Contestant(OURS, self.ours)]

    def ours(self) -> dict[str, Array]:
        """Runs our program through the public API."""
        return self._run(self._inputs)

    def invite(self, name: str) -> None:
        """Adds a peer; if it rejects the model, the reason appears in the table."""
        if self._proto is None:
            raise UnsupportedError("peers read ONNX only", self._name, "leave out --against")
        known = PEERS[name]
        try:
            run = ready(known, self._proto, self._inputs, self._threads)
            run()
        except UnsupportedError as refusal:
            self._refusals[name] = refusal.what
            return
        self._outputs[name] = run
        self._contestants.append(Contestant(name, run, many=known.many))

    def race(self, seconds: float, rounds: int) -> None:
        race(self._contestants, threads=self._threads, seconds=seconds, rounds=rounds)

    def result(self, accuracy: bool) -> Result:
        parts = self._lowered()
        flops = sum(part.flops for part in parts)
        loop, *others = self._contestants
        fastest = self._peak_work / loop.best / 1e9
        errors = self._errors() if accuracy else {}
        ours = others[0].best
        rows = [_row(each, flops, fastest, ours, errors.get(each.name)) for each in others]
        rows += [Row(name, refusal=why) for name, why in self._refusals.items()]
        return Result(
            model=self._name,
            threads=self._threads,
            gflop=flops / 1e9,
            bytes_moved=sum(part.moved for part in parts),
            arena=sum(part.arena for part in parts),
            largest_live_set=max((part.largest_live_set for part in parts), default=0),
            peak_gflops=fastest,
            rows=rows,
        )

    def _lowered(self) -> list[ProgramWork]:
        """The work of the model's program, or of each segment of a model with host steps."""
        request = compiler.BuildRequest(
            self._module.clone(), self._compilation, self._options, DEFAULT, self._threads
        )
        return list(work_of_programs(request, lambda: self._inputs))

    def _errors(self) -> dict[str, float]:
        expected = exact(self._module, self._compilation, self._inputs)
        return {name: error(run(), expected) for name, run in self._outputs.items()}


def _row(each: Contestant, flops: int, peak: float, ours: float, error: float | None) -> Row:
    rate = flops / each.best / 1e9
    return Row(
        name=each.name,
        best_ms=each.best * 1e3,
        median_ms=each.median * 1e3,
        ratio=None if each.name == OURS else each.best / ours,
        gflops=rate,
        share_of_peak=rate / peak,
        error=error,
    )
