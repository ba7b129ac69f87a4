"""The programs of training: the step, and the model for validation and prediction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.backends.registry import DEFAULT
from popgraph.background import Backlog
from popgraph.compiler import BuildRequest, for_this_machine
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
from popgraph.support.errors import RunError
from popgraph.support.inputs import check_names, fitted
from popgraph.support.machine import Machine
from popgraph.support.shapes import Shape
from popgraph.training.driver import ScheduledDriver
from popgraph.training.inference_form import to_inference
from popgraph.training.loss_reduction import SUM, reduction_of
from popgraph.training.roles import is_float
from popgraph.training.samples import Batch, count_rows
from popgraph.training.sized_outputs import may_need_several_programs
from popgraph.training.task import Task


@dataclass(frozen=True)
class BuildSettings:
    """Compilation settings of the programs."""

    backend: str = DEFAULT
    threads: int = 1
    indices: str | None = None
    straight_through: bool = False
    dropout: bool = True
    values: dict[str, Array] = field(default_factory=dict)
    """Inputs that decide the structure of the model, the same in all steps."""
    recompute: str = ""
    """Activations to recompute in the backward pass; see `Options.recompute`."""
    precision: str = ""
    """The type of the factors of matmuls and convolutions; see `Options.precision`."""
    determinism: str = ""
    backlog: Backlog | None = None
    """Queue of quick programs to be replaced by tuned ones; None: programs are tuned at once."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Upper bounds of open dimensions; see `popgraph.compile`."""

    def check_precision(self) -> None:
        """RunError unless the machine has faster products of this precision."""
        machine = for_this_machine(Options(), self.threads, self.backend).machine
        if machine is not None:
            check_words(machine, self.precision)

    def request(self, task: Task, shapes: Mapping[str, Shape] | None = None) -> BuildRequest:
        """The build request of steps with inputs of these shapes, plus the fixed `values`."""
        options = Options(
            training=task.training,
            indices=self.indices,
            straight_through=self.straight_through,
            dropout=self.dropout,
            recompute=self.recompute,
            precision=self.precision,
            determinism=self.determinism,
        )
        request = self.request_of_module(task.module, Compilation(task.weights), options)
        fixed = {name: array.shape for name, array in self.values.items()}
        return request.specialise(Call({**(shapes or {}), **fixed}, self.values))

    def request_of_module(
        self, module: ModuleOp, compilation: Compilation, options: Options
    ) -> BuildRequest:
        """The build request of a module."""
        return BuildRequest(
            module,
            compilation,
            options,
            self.backend,
            self.threads,
            backlog=self.backlog,
            bounds=self.bounds,
        )


def check_words(machine: Machine, precision: str) -> None:
    """RunError unless a machine has dot products of this precision; "" is that of the model."""
    if precision and precision not in machine.words:
        raise RunError(
            f"{machine.name} has no dot products of {precision}, such as AVX512-BF16 has: "
            "each product would take longer than in f32",
            "precision",
            "leave it out; `popgraph doctor` lists what a machine has, as `words`",
        )


class Inputs:
    """The inputs of a model: selects them from a batch and converts their element types."""

    def __init__(self, module: ModuleOp, values: Mapping[str, Array]) -> None:
        types = input_types(module)
        self.dtypes: dict[str, DType] = {
            name: element_types.from_ir(type_.element_type)  # type: ignore[attr-defined]
            for name, type_ in types.items()
            if name not in values
        }
        self.converted: dict[str, tuple[object, DType]] = {}
        """Inputs whose data have another element type than the model's."""

    def convert(self, batch: Batch, *, only: bool = False) -> Batch:
        """The inputs, converted; with `only`, a batch may hold other arrays as well."""
        if batch.keys() != self.dtypes.keys():
            batch = {name: batch[name] for name in self.dtypes if name in batch} if only else batch
            check_names(batch, self.dtypes, "the data")
        found = {}
        for name, dtype in self.dtypes.items():
            array = found[name] = batch[name]
            if array.dtype != dtype.numpy:
                self.converted[name] = array.dtype, dtype
                found[name] = fitted(name, array, dtype)
        return found


def summed_outputs(task: Task) -> frozenset[str]:
    """The names among the loss and its terms that are sums over samples."""
    return frozenset(name for name in (task.loss, *task.terms) if reduction_of(task, name) == SUM)


def combine_outputs(
    parts: Sequence[MicroBatch], outputs: Sequence[Mapping[str, Array]], sums: Collection[str]
) -> dict[str, Array]:
    """Combines the outputs of micro-batches into outputs of the batch."""
    return {
        name: _combine(parts, [one[name] for one in outputs], is_sum=name in sums)
        for name in outputs[0]
    }


def _combine(parts: Sequence[MicroBatch], values: Sequence[Array], *, is_sum: bool) -> Array:
    """Concatenates rows of samples; sums or averages scalars."""
    if all(one.ndim and len(one) == part.rows for one, part in zip(values, parts, strict=True)):
        return np.concatenate(values)
    weights = [1.0 if is_sum else part.share for part in parts]
    wide = [one.astype(np.float64) * weight for one, weight in zip(values, weights, strict=True)]
    return np.asarray(sum(wide), values[0].dtype)


class TrainingSteps:
    """Training steps: one program per batch shape, all with the same variables."""

    def __init__(self, task: Task, build: BuildSettings, first: Batch, plan: StepPlan) -> None:
        """`first` is a micro-batch of the plan."""
        self.inputs, self.plan = Inputs(task.module, build.values), plan
        given = self.inputs.convert(first)  # Rejects unfit data before compiling.
        self.rows = count_rows(first)
        """Rows of a micro-batch of a complete batch."""
        self._sums = summed_outputs(task)
        self._is_mean = task.training.optimizer.mean
        request = build.request(task)
        if self.plan.is_split:
            request = AccumulatingRequest.of(request, self.plan.replicas, self.plan.stages)
        self._runner = request.runner()
        self.executable = self._program(given)
        self.driver = ScheduledDriver.of(task, self.executable)

    @property
    def programs(self) -> list[ProgramRange]:
        """The programs built so far, and the sizes that each is for."""
        return self._runner.programs

    def _program(self, inputs: Mapping[str, Array]) -> Executable:
        return self._runner.program(inputs)

    def split(self, batch: Batch) -> list[MicroBatch]:
        return list(self.plan.split(self.inputs.convert(batch), self.rows))

    def run(self, batch: Batch) -> dict[str, Array]:
        """Runs one step; returns the outputs of the whole batch."""
        if self.plan.is_split:
            return self._accumulate(self.split(batch))
        inputs = self.inputs.convert(batch)
        self.executable = program = self._program(inputs)
        if len(inputs) > len(program.inputs):
            inputs = {name: inputs[name] for name in program.inputs}
        outputs = self.driver.step(program, inputs)
        self.driver.end(program)
        return outputs

    def _accumulate(self, parts: Sequence[MicroBatch]) -> dict[str, Array]:
        """
        Runs the micro-batches of a step; the program updates after the last one.

        A short batch has fewer micro-batches than an update needs: the counter starts as if the
        missing ones had run, with zero gradients.
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
                self.driver.scale_gradients(self.executable, weight)
            names = self.executable.inputs
            taken = [{name: one[name] for name in names} for one in inputs]
            found += run_all(self.executable, taken)
        if weight != 1.0:
            self.driver.scale_gradients(self.executable, 1.0)
        self.driver.end(self.executable)
        return combine_outputs(parts, found, self._sums)

    def continue_from(self, steps: TrainingSteps) -> None:
        """Takes over the variables and the step count of another program of the same model."""
        known = self.executable.variables
        self.write({name: value for name, value in steps.read().items() if name in known})
        self.driver.continue_from(steps.driver, self.executable)

    def read(self) -> dict[str, Array]:
        """All variables that steps change: weights, optimizer state, random state."""
        return {name: self.executable.read(name) for name in self.executable.variables}

    def write(self, values: Mapping[str, Array]) -> None:
        for name, value in values.items():
            self.executable.write(name, value)
        self.driver.resume(self.executable)

    def weights(self, module: ModuleOp) -> dict[str, Array]:
        """The values of the model's initializers that steps change."""
        names = weights_by_name(model_of(module).graph)
        return {
            name: self.executable.read(name) for name in names if name in self.executable.variables
        }


class Inference:
    """The model in inference form, run with the weights that training has reached."""

    def __init__(
        self,
        module: ModuleOp,
        weights: WeightStore,
        build: BuildSettings,
        plan: StepPlan | None = None,
        sums: Collection[str] = (),
    ) -> None:
        """With a plan, batches run as micro-batches; outputs in `sums` are added up."""
        self.plan, self.rows, self._sums = plan or StepPlan(), 1, sums
        module = module.clone()
        to_inference(module)
        self.inputs = Inputs(module, build.values)
        self._fed = _feed_weights(module, weights) if may_need_several_programs(module) else {}
        self._runner = _runner(module, weights, build)
        self._weights: Mapping[str, Array] = {}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Sets the weights for the following batches."""
        self._weights = weights

    def run(self, batch: Batch) -> dict[str, Array]:
        inputs = self.inputs.convert(batch, only=True)
        if not self.plan.is_split:
            return self._run(inputs)
        parts = list(self.plan.split(inputs, self.rows))
        return combine_outputs(parts, [self._run(part.inputs) for part in parts], self._sums)

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        fed = {name: self._weights.get(name, value) for name, value in self._fed.items()}
        inputs = {**inputs, **fed}
        executable = self._runner.program(inputs)
        for name, value in self._weights.items():
            if name in executable.variables:
                executable.write(name, value)
        return executable.run({name: inputs[name] for name in executable.inputs})


def _feed_weights(module: ModuleOp, store: WeightStore) -> dict[str, Array]:
    """Turns the weights of a model with host steps, which has no variables, into inputs."""
    weights = {
        name: one.array(store)
        for name, one in weights_by_name(model_of(module).graph).items()
        if is_float(one)
    }
    demand(module, weights)
    return weights


def _runner(module: ModuleOp, weights: WeightStore, build: BuildSettings) -> Runner:
    # Programs with variables are not split at host steps.
    options = Options(
        variables=not may_need_several_programs(module),
        indices=build.indices,
        determinism=build.determinism,
    )
    request = build.request_of_module(module, Compilation(WeightStore(weights)), options)
    if build.values:
        shapes = {name: value.shape for name, value in build.values.items()}
        request = request.specialise(Call(shapes, build.values))
    return request.runner()
