"""The programs of a training: its steps, and the same model for validation and prediction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.backends.registry import DEFAULT
from popgraph.background import Backlog
from popgraph.compiler import BuildRequest
from popgraph.dialects import element_types
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.engine.accumulation import AccumulatingRequest
from popgraph.engine.plan import MicroBatch, StepPlan
from popgraph.engine.replicas import run_all
from popgraph.open_model import Call, ProgramRange
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.onnx.overridable import demand
from popgraph.passes.options import Options
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.given import check_names, fitted
from popgraph.support.shapes import Shape
from popgraph.training.driver import Driver
from popgraph.training.inference_form import to_inference
from popgraph.training.reductions import SUM, reduction_of
from popgraph.training.roles import is_float
from popgraph.training.samples import Batch, count_rows
from popgraph.training.sized_outputs import may_be_steps
from popgraph.training.task import Task


@dataclass(frozen=True)
class Build:
    """How programs are made."""

    backend: str = DEFAULT
    threads: int = 1
    indices: str | None = None
    straight_through: bool = False
    dropout: bool = True
    values: dict[str, Array] = field(default_factory=dict)
    """The inputs that decide structure: the same in all steps."""
    recompute: str = ""
    """What gradients compute again, as `Options.recompute` has it."""
    backlog: Backlog | None = None
    """Where quick programs wait for their tuned ones; None: programs are tuned at once."""

    def request(self, task: Task, shapes: Mapping[str, Shape] | None = None) -> BuildRequest:
        """What is to be built for steps on inputs of these shapes; some always have `values`."""
        options = Options(
            training=task.training,
            indices=self.indices,
            straight_through=self.straight_through,
            dropout=self.dropout,
            recompute=self.recompute,
        )
        request = self.of(task.module, Compilation(task.weights), options)
        fixed = {name: array.shape for name, array in self.values.items()}
        return request.specialised(Call({**(shapes or {}), **fixed}, self.values))

    def of(self, module: ModuleOp, compilation: Compilation, options: Options) -> BuildRequest:
        """What is to be built of a module."""
        return BuildRequest(
            module, compilation, options, self.backend, self.threads, backlog=self.backlog
        )


class Inputs:
    """The inputs of a model: what of a batch it takes, in the element types that it wants."""

    def __init__(self, module: ModuleOp, values: Mapping[str, Array]) -> None:
        types = input_types(module)
        self.dtypes: dict[str, DType] = {
            name: element_types.from_ir(type_.element_type)  # type: ignore[attr-defined]
            for name, type_ in types.items()
            if name not in values
        }
        self.converted: dict[str, tuple[object, DType]] = {}
        """The inputs whose data are of another element type."""

    def of(self, batch: Batch, *, only: bool = False) -> Batch:
        """The inputs in their element types; if `only`, a batch may hold more than these."""
        given = {name: batch[name] for name in self.dtypes if name in batch} if only else batch
        check_names(given, self.dtypes, "the data")
        for name, dtype in self.dtypes.items():
            if given[name].dtype != dtype.numpy:
                self.converted[name] = given[name].dtype, dtype
        return {name: fitted(name, given[name], dtype) for name, dtype in self.dtypes.items()}


def sums_of(task: Task) -> frozenset[str]:
    """The loss and its terms, as far as they are sums over samples."""
    return frozenset(name for name in (task.loss, *task.terms) if reduction_of(task, name) == SUM)


def whole(
    parts: Sequence[MicroBatch], outputs: Sequence[Mapping[str, Array]], sums: Collection[str]
) -> dict[str, Array]:
    """The outputs of a batch from those of its micro-batches."""
    return {
        name: _joined(parts, [one[name] for one in outputs], is_sum=name in sums)
        for name in outputs[0]
    }


def _joined(parts: Sequence[MicroBatch], values: Sequence[Array], *, is_sum: bool) -> Array:
    """Rows of all samples, or the sum or mean of numbers."""
    if all(one.ndim and len(one) == part.rows for one, part in zip(values, parts, strict=True)):
        return np.concatenate(values)
    weights = [1.0 if is_sum else part.share for part in parts]
    wide = [one.astype(np.float64) * weight for one, weight in zip(values, weights, strict=True)]
    return np.asarray(sum(wide), values[0].dtype)


class Steps:
    """Steps of training: a program for each shape of a batch, which share their variables."""

    def __init__(self, task: Task, build: Build, first: Batch, plan: StepPlan) -> None:
        """`first` is a micro-batch of the plan."""
        self.inputs, self.plan = Inputs(task.module, build.values), plan
        given = self.inputs.of(first)  # What does not fit is said before anything is compiled.
        self.rows = count_rows(first)
        """The rows of a micro-batch of whole batches."""
        self._sums = sums_of(task)
        self._is_mean = task.training.optimizer.mean
        request = build.request(task)
        if self.plan.is_split:
            request = AccumulatingRequest.of(request, self.plan.replicas, self.plan.stages)
        self._runner = request.runner()
        self.executable = self._program(given)
        self.driver = Driver.of(task, self.executable)

    @property
    def programs(self) -> list[ProgramRange]:
        """The programs that were made, and the sizes that each is for."""
        return self._runner.programs

    def _program(self, inputs: Mapping[str, Array]) -> Executable:
        return self._runner.program(inputs)

    def split(self, batch: Batch) -> list[MicroBatch]:
        """The micro-batches of a batch."""
        return list(self.plan.split(self.inputs.of(batch), self.rows))

    def run(self, batch: Batch) -> dict[str, Array]:
        """One step; the outputs for the whole batch."""
        if self.plan.is_split:
            return self._accumulate(self.split(batch))
        inputs = self.inputs.of(batch)
        self.executable = self._program(inputs)
        taken = {name: inputs[name] for name in self.executable.inputs}
        outputs = self.driver.step(self.executable, taken)
        self.driver.end(self.executable)
        return outputs

    def _accumulate(self, parts: Sequence[MicroBatch]) -> dict[str, Array]:
        """
        Runs the micro-batches of a step; the program updates after the last one.

        A short batch fills fewer micro-batches than an update is made of: the first ones count as
        run, with gradients of zero.
        """
        period, found = self.plan.runs, list[dict[str, Array]]()
        self.executable = self._program(parts[0].inputs)
        self.driver.begin(self.executable)
        if len(parts) < period:
            before, _ = self.executable.variables[COUNTER]
            self.executable.write(COUNTER, np.array(period - len(parts), before.numpy))
        weight, samples = 1.0, sum(part.rows for part in parts)
        for rows, group in groupby(parts, lambda part: part.rows):
            inputs = [part.inputs for part in group]
            self.executable = self._program(inputs[0])
            if self._is_mean and rows / samples * period != weight:
                weight = rows / samples * period
                self.driver.weigh(self.executable, weight)
            names = self.executable.inputs
            taken = [{name: one[name] for name in names} for one in inputs]
            found += run_all(self.executable, taken)
        if weight != 1.0:
            self.driver.weigh(self.executable, 1.0)
        self.driver.end(self.executable)
        return whole(parts, found, self._sums)

    def read(self) -> dict[str, Array]:
        """All that steps change: weights, the optimizer's state, the state of random numbers."""
        return {name: self.executable.read(name) for name in self.executable.variables}

    def write(self, values: Mapping[str, Array]) -> None:
        for name, value in values.items():
            self.executable.write(name, value)
        self.driver.resume(self.executable)

    def weights(self, module: ModuleOp) -> dict[str, Array]:
        """The values of a model's initializers that steps change."""
        names = weights_by_name(model_of(module).graph)
        return {
            name: self.executable.read(name) for name in names if name in self.executable.variables
        }


class Inference:
    """A model as it is used, run with weights that training has changed meanwhile."""

    def __init__(
        self,
        module: ModuleOp,
        weights: WeightStore,
        build: Build,
        plan: StepPlan | None = None,
        sums: Collection[str] = (),
    ) -> None:
        """With a plan, batches run as micro-batches; outputs among `sums` are added up."""
        self.plan, self.rows, self._sums = plan or StepPlan(), 1, sums
        module = module.clone()
        to_inference(module)
        self.inputs = Inputs(module, build.values)
        self._fed = _feed_weights(module, weights) if may_be_steps(module) else {}
        self._runner = _runner(module, weights, build)
        self._weights: Mapping[str, Array] = {}

    def take(self, weights: Mapping[str, Array]) -> None:
        """The weights with which batches are computed from now on."""
        self._weights = weights

    def run(self, batch: Batch) -> dict[str, Array]:
        inputs = self.inputs.of(batch, only=True)
        if not self.plan.is_split:
            return self._run(inputs)
        parts = list(self.plan.split(inputs, self.rows))
        return whole(parts, [self._run(part.inputs) for part in parts], self._sums)

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        fed = {name: self._weights.get(name, value) for name, value in self._fed.items()}
        inputs = {**inputs, **fed}
        executable = self._runner.program(inputs)
        for name, value in self._weights.items():
            if name in executable.variables:
                executable.write(name, value)
        return executable.run({name: inputs[name] for name in executable.inputs})


def _feed_weights(module: ModuleOp, store: WeightStore) -> dict[str, Array]:
    """Makes inputs of the weights of a model that has steps of the host, and no variables."""
    weights = {
        name: one.array(store)
        for name, one in weights_by_name(model_of(module).graph).items()
        if is_float(one)
    }
    demand(module, weights)
    return weights


def _runner(module: ModuleOp, weights: WeightStore, build: Build) -> Runner:
    # Steps of the host are not split where a model has variables.
    options = Options(variables=not may_be_steps(module), indices=build.indices)
    request = build.of(module, Compilation(WeightStore(weights)), options)
    if build.values:
        shapes = {name: value.shape for name, value in build.values.items()}
        request = request.specialised(Call(shapes, build.values))
    return request.runner()
