"""`popgraph train`: trains a model on arrays of samples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import Folders, IndicesChoice, Threads, Values
from popgraph.cli.run import Backend
from popgraph.support.errors import ModelError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Attribute

    from popgraph.backends.base import Executable
    from popgraph.support.arrays import Array
    from popgraph.training.driver import Driver
    from popgraph.training.epochs import Batches, Progress
    from popgraph.training.task import Task


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
    value: Values = None,
    indices: IndicesChoice = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Weights that stay as they are: 'layer1.*'."),
    ] = None,
    train_only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Of all weights, train these only: 'fc.*'."),
    ] = None,
    straight_through: Annotated[
        bool,
        typer.Option(
            "--straight-through",
            help="Gradients pass QuantizeLinear and DequantizeLinear as if nothing were rounded.",
        ),
    ] = False,
    threads: Threads = 1,
    folders: Folders = None,
) -> None:
    """
    Train a model on arrays.

    \b
    popgraph train net.pgraph x=x.npy labels=labels.npy --epochs 5 -o trained.onnx
    popgraph train net.onnx --data x=x.npy --data labels=labels.npy \\
        --loss 'nll(y, labels)' --optimizer 'Adam(0.001)' --batch 64 -o trained.onnx

    A .pgraph file says loss and optimizer in its `train` section; the options go before it.
    A table says what is trained, and why the rest is not: running statistics, settings of
    operators and constants of an exporter; --freeze and --train-only (which may be given again)
    decide otherwise. BatchNormalization and Dropout mean what they mean in training, whatever
    mode they were exported in; a BatchNormalization whose running statistics are frozen uses
    these. The file that -o writes is for inference.
    Samples that do not fill a batch are left out of an epoch (they differ from epoch to epoch).
    """
    from popgraph.cli import models
    from popgraph.passes.base import Compilation
    from popgraph.training.driver import Driver
    from popgraph.training.epochs import Batches, count_samples
    from popgraph.training.inference_form import to_inference
    from popgraph.training.selection import Choice
    from popgraph.training.trained_weights import put_weights, trained_weights

    arrays = models.read_arrays([*(data or ()), *(more or ())], "--data")
    if output is not None and output.suffix not in models.SAVERS:
        raise typer.BadParameter(
            f"{output.name!r} must end in {', '.join(models.SAVERS)}", param_hint="--output"
        )
    if output is not None:  # said before hours of training
        models.check_place(output, "--output")
    module, task = _task(model, arrays, loss, optimizer)
    task = replace(task, choice=Choice(tuple(freeze or ()), tuple(train_only or ())))
    task.selection.check()
    samples = count_samples(arrays)
    batches = Batches(epochs, min(batch, samples), samples, seed)
    chosen = None if indices is None else indices.value
    shapes = {name: (batches.size, *array.shape[1:]) for name, array in arrays.items()}
    values = _values(value or (), task, arrays)
    executable = task.request(
        shapes, backend.value, threads, chosen, values, straight_through
    ).executable()
    arrays = {
        name: models.fitted(name, array, executable.inputs[name][0])
        for name, array in arrays.items()
        if name in executable.inputs
    }
    typer.echo(f"{task.selection}\n")
    _train(Driver.of(task, executable), executable, task, arrays, batches)
    if output is not None:
        put_weights(module, trained_weights(module, executable), task.weights)
        to_inference(module)
        models.save(output, module, Compilation(task.weights))
        typer.echo(f"trained weights are in {output}")


def _task(
    path: Path, arrays: Mapping[str, Array], loss: str | None, optimizer: str | None
) -> tuple[ModuleOp, Task]:
    """The model, and what its `train` section or the options say."""
    from popgraph.builder.pgraph import add_loss, parse_optimizer
    from popgraph.builder.pgraph import load as load_text
    from popgraph.cli import models
    from popgraph.training.merged_weights import separate_weights
    from popgraph.training.roles import Origin
    from popgraph.training.task import Task, task_of
    from popgraph.training.update_rule import optimizer_of

    task: Task | None = None
    if path.suffix == ".pgraph" and path.is_file():
        document = load_text(path)
        task, model, weights = task_of(document), document.module, document.weights
    else:
        model, compilation = models.load(path)
        weights = compilation.weights
        separate_weights(model, weights)
    if optimizer:
        rule, schedule = optimizer_of(parse_optimizer(optimizer)), None
    elif task is not None and task.rule is not None:
        rule, schedule = task.rule, task.schedule
    else:
        raise ModelError("no optimizer is given", str(path), "--optimizer 'SGD(0.1, momentum=0.9)'")
    if loss is not None:
        training, name = add_loss(model, weights, loss, _new_inputs(model, arrays))
        origin = Origin.of(model, is_text=path.suffix == ".pgraph")
        task = Task(training, weights, name, origin=origin)
    if task is None:
        raise ModelError("no loss is given", str(path), "--loss 'nll(y, labels)'")
    return model, replace(task, rule=rule, schedule=schedule)


def _values(texts: Sequence[str], task: Task, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The values of the inputs that decide structure: the same in all steps, so no samples."""
    from popgraph.cli import models
    from popgraph.passes.base import Compilation

    values, compilation = models.values(texts, task.module), Compilation(task.weights)
    twice = [name for name in values if name in arrays]
    sampled = [name for name in models.structural(task.module, compilation) if name in arrays]
    for name in (*twice, *sampled):
        raise ModelError(
            f"input {name!r} has samples and "
            + ("a value" if twice else "decides the structure of the model"),
            hint=f"its value is the same in all steps: --value {name}=..., and no data",
        )
    models.check_structure(task.module, compilation, values)
    return values


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


def _train(
    driver: Driver,
    executable: Executable,
    task: Task,
    arrays: Mapping[str, Array],
    batches: Batches,
) -> None:
    """Runs the steps and tells the mean loss of every epoch."""
    from popgraph.training.epochs import train

    watched = (task.loss, *task.terms)
    with _progress(batches.epochs * batches.per_epoch) as advance:
        for progress in train(driver, executable, arrays, batches, watched):
            told = _told(progress, batches.epochs, task)
            advance(told)
            if progress.ends_epoch:
                print(told)


def _told(progress: Progress, epochs: int, task: Task) -> str:
    """How far training is: the mean of the loss and of its terms since the epoch began."""
    means = progress.means
    terms = "".join(f"  {name} {means[name]:.5f}" for name in task.terms)
    return f"epoch {progress.epoch + 1}/{epochs}  loss {means[task.loss]:.5f}{terms}"


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
    same_screen = sys.stdout.isatty()
    with Progress(
        *columns, console=screen, transient=True, redirect_stdout=same_screen
    ) as progress:
        task = progress.add_task("", total=steps)
        yield lambda text: progress.update(task, advance=1, description=text)
