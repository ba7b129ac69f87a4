"""`popgraph train`: how do the weights of a model become better?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import Indices, IndicesChoice, Threads
from popgraph.cli.run import Backend
from popgraph.support.errors import ModelError, RunError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Attribute

    from popgraph.backends.base import Executable
    from popgraph.builder.pgraph import OptimizerCall, Schedule, TrainingSection
    from popgraph.passes.base import Compilation
    from popgraph.passes.graphcore.training.optimizer_spec import OptimizerSpec
    from popgraph.support.arrays import Array


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx or .pgraph file.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=FILE.npy]...", help="As --data.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE.npy", help="An input's samples, along the first axis."),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="A value of the model, or an expression: 'nll(y, labels)'.")
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="For example 'SGD(0.1, momentum=0.9)' or 'Adam(0.001)'.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="How often all samples are seen.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="How many samples are in one step.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="The order of the samples.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to keep the trained model.")
    ] = None,
    backend: Annotated[Backend, typer.Option(help="C, or NumPy for every operation.")] = Backend.C,
    indices: IndicesChoice = None,
    threads: Threads = 1,
) -> None:
    """
    Train a model on arrays.

    \b
    popgraph train net.pgraph x=x.npy labels=labels.npy --epochs 5 -o trained.onnx
    popgraph train net.onnx --data x=x.npy --data labels=labels.npy \\
        --loss 'nll(y, labels)' --optimizer 'Adam(0.001)' --batch 64 -o trained.onnx

    A .pgraph file says loss and optimizer in its `train` section; the options go before it.
    Samples that do not fill a batch are left out of an epoch (they differ from epoch to epoch).
    """
    from popgraph.cli import models

    arrays = models.read_arrays([*(data or ()), *(more or ())], "--data")
    if output is not None and output.suffix not in models.SAVERS:
        raise typer.BadParameter(
            f"{output.name!r} must end in {', '.join(models.SAVERS)}", param_hint="--output"
        )
    if output is not None:  # said before hours of training
        models.check_place(output, "--output")
    task = _task(model, arrays, loss, optimizer)
    samples = _samples(arrays)
    executable = task.build(arrays, min(batch, samples), backend.value, threads, indices)
    arrays = {
        name: models.fitted(name, array, executable.inputs[name][0])
        for name, array in arrays.items()
        if name in executable.inputs
    }
    _train(executable, task, arrays, epochs, min(batch, samples), seed)
    if output is not None:
        task.keep(executable)
        models.save(output, task.model, task.compilation)
        typer.echo(f"trained weights are in {output}")


@dataclass
class Task:
    """What to train, by which rule, and where the result goes."""

    model: ModuleOp
    """The model as it was given; it gets the trained weights."""
    training: ModuleOp
    """The model with its loss."""
    compilation: Compilation
    loss: str
    optimizer: OptimizerCall
    schedule: Schedule | None = None
    terms: tuple[str, ...] = ()
    """Numbers that the loss is computed from, which are told with it."""

    @property
    def rule(self) -> OptimizerSpec:
        """The optimizer as the compiler knows it."""
        from popgraph.training.update_rule import rule_of

        return rule_of(self.optimizer, self.schedule)

    def follow_schedule(self, executable: Executable, step: int) -> None:
        """Sends the learning rate of a step."""
        from popgraph.passes.graphcore.training.optimizer_spec import streamed_scalars
        from popgraph.training.update_rule import with_rate

        if self.schedule is None:
            return
        weights = {
            name: dtype for name, (dtype, _) in executable.variables.items() if dtype.is_float
        }
        loss, _ = executable.outputs[self.loss]
        spec = with_rate(self.rule, self.schedule.factor(step))
        for name, value in streamed_scalars(spec, weights, loss).items():
            if name in executable.variables:
                executable.write(name, value)

    def build(
        self,
        arrays: Mapping[str, Array],
        batch: int,
        backend: str,
        threads: int,
        indices: Indices | None = None,
    ) -> Executable:
        """The program of one step."""
        from popgraph import compiler
        from popgraph.passes.onnx.infer_shapes import specialise
        from popgraph.passes.pipeline import Options, Training

        module = self.training.clone()
        shapes = {name: (batch, *array.shape[1:]) for name, array in arrays.items()}
        specialise(module, shapes, self.compilation.weights)
        chosen = None if indices is None else indices.value
        options = Options(training=Training(self.loss, self.rule), indices=chosen)
        return compiler.build(module, self.compilation, options, backend=backend, threads=threads)

    def keep(self, executable: Executable) -> None:
        """Writes the trained weights into the model."""
        from popgraph.dialects.onnx import Initializer, model_of
        from popgraph.dialects.onnx.tensorproto import from_value

        for op in model_of(self.model).graph.initializers:
            assert isinstance(op, Initializer)
            name = op.value_name.text
            if name in executable.variables:
                value = from_value(executable.read(name), self.compilation.weights)
                op.properties["value"] = value


def _task(path: Path, arrays: Mapping[str, Array], loss: str | None, optimizer: str | None) -> Task:
    """The model, and what its `train` section or the options say."""
    from popgraph.builder.pgraph import add_loss, parse_optimizer
    from popgraph.builder.pgraph import load as load_text
    from popgraph.cli import models
    from popgraph.passes.base import Compilation

    section: TrainingSection | None = None
    if path.suffix == ".pgraph" and path.is_file():
        document = load_text(path)
        section, model = document.training, document.module
        compilation = Compilation(document.weights)
    else:
        model, compilation = models.load(path)
    declared = section.optimizer if section is not None else None
    rule = parse_optimizer(optimizer) if optimizer else declared
    if rule is None:
        raise ModelError("no optimizer is given", str(path), "--optimizer 'SGD(0.1, momentum=0.9)'")
    schedule = None if section is None or optimizer else section.schedule
    if loss is None:
        if section is None:
            raise ModelError("no loss is given", str(path), "--loss 'nll(y, labels)'")
        return Task(
            model,
            section.module,
            compilation,
            section.loss,
            rule,
            schedule,
            section.terms,
        )
    training, name = add_loss(model, compilation.weights, loss, _new_inputs(model, arrays))
    return Task(model, training, compilation, name, rule, schedule)


def _new_inputs(module: ModuleOp, arrays: Mapping[str, Array]) -> dict[str, Attribute]:
    """The types of arrays that are no inputs of the model, with the batch dimension open."""
    from popgraph.dialects.onnx.graphs import input_types
    from popgraph.dialects.onnx.types import dims, tensor_type
    from popgraph.support import dtypes

    known = input_types(module)
    firsts = [sizes[0] for type_ in known.values() if (sizes := dims(type_))]
    batch = firsts[0] if firsts else None
    return {
        name: tensor_type(dtypes.from_numpy(array.dtype), [batch, *array.shape[1:]])
        for name, array in arrays.items()
        if name not in known
    }


def _samples(arrays: Mapping[str, Array]) -> int:
    """How many samples there are; RunError unless all arrays agree."""
    if not arrays:
        raise RunError("there is no data to train on", hint="x=x.npy labels=labels.npy")
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not min(counts.values()):
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise RunError(f"the arrays have different numbers of samples ({listed})")
    return next(iter(counts.values()))


def _train(
    executable: Executable,
    task: Task,
    arrays: Mapping[str, Array],
    epochs: int,
    batch: int,
    seed: int,
) -> None:
    """Runs the steps and tells the mean loss of every epoch."""
    import numpy as np

    samples = _samples(arrays)
    generator = np.random.default_rng(seed)
    steps = samples // batch
    names = (task.loss, *task.terms)
    with _progress(epochs * steps) as advance:
        for epoch in range(epochs):
            order = generator.permutation(samples)
            totals = dict.fromkeys(names, 0.0)
            for step in range(steps):
                chosen = order[step * batch : (step + 1) * batch]
                task.follow_schedule(executable, epoch * steps + step)
                results = executable.run({name: array[chosen] for name, array in arrays.items()})
                for name in names:
                    totals[name] += float(results[name].astype(np.float64).mean())
                advance(_told(epoch, epochs, task, totals, step + 1))
            print(_told(epoch, epochs, task, totals, steps))


def _told(epoch: int, epochs: int, task: Task, totals: Mapping[str, float], steps: int) -> str:
    """How far training is: the mean of the loss and of its terms since the epoch began."""
    terms = "".join(f"  {name} {totals[name] / steps:.5f}" for name in task.terms)
    return f"epoch {epoch + 1}/{epochs}  loss {totals[task.loss] / steps:.5f}{terms}"


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, nothing in a pipe."""
    from popgraph.cli.report import is_terminal

    if not is_terminal():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Lines go above the bar if they are on the same screen, and into the pipe if there is one.
    screen = Console(stderr=True)
    shared = sys.stdout.isatty()
    with Progress(*columns, console=screen, transient=True, redirect_stdout=shared) as progress:
        task = progress.add_task("", total=steps)
        yield lambda text: progress.update(task, advance=1, description=text)
