"""`popgraph train`: trains a model on arrays of samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli import models
from popgraph.cli.options import (
    Folders,
    Freeze,
    IndicesChoice,
    Lora,
    LoraAlpha,
    LoraLayers,
    Threads,
    TrainOnly,
    Values,
    existing,
    lora_settings,
    step_option,
)
from popgraph.cli.report import note
from popgraph.cli.run import BackendChoice
from popgraph.support.garbage import while_importing
from popgraph.support.signals import terminating_on_sigint

if TYPE_CHECKING:
    from popgraph.support.arrays import Array
    from popgraph.training.checks import Check


def command(
    model: Annotated[Path, typer.Argument(help="An .onnx or .pgraph file.", callback=existing)],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=FILE.npy]...", help="Same as --data.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE.npy", help="Samples of an input, along the first axis."),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="A name (cross_entropy, mse ...), an expression ('nll(y, labels)') or a value."
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help="A name (adam, sgd ...), optionally with arguments: 'SGD(0.1, momentum=0.9)'."
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="Factor of the learning rate over time: 'cosine(steps=1000)'."),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Number of passes over all samples.")] = 1,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Metric reported in addition to the loss: accuracy, top5, f1, mae ...",
        ),
    ] = None,
    prediction: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Output to which a named --loss and --metric apply, if there are several.",
        ),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|NAME=FILE.npy,...",
            help="Validation samples: a fraction of all samples, such as 0.2, or separate arrays.",
        ),
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(help="Metric that selects the best epoch: val_loss, val_accuracy ..."),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after this number of epochs without improvement."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for checkpoints, which --resume continues from."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS|TIME",
            help="Interval of checkpoints: 500 (steps), or 10min (default: every epoch).",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint, if the file exists.")
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for one row per epoch, .csv or .jsonl."),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for TensorBoard event files."),
    ] = None,
    curves: Annotated[
        bool,
        typer.Option("--curves", help="Draw learning curves in the terminal during training."),
    ] = False,
    view: Annotated[
        bool, typer.Option("--view", help="Show the training in the browser while it runs.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the page of --view to a file at the end."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Batch size (default: that of the model, or 32)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the shuffling.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the trained model.")
    ] = None,
    backend: BackendChoice = "c",
    value: Values = None,
    indices: IndicesChoice = None,
    freeze: Freeze = None,
    train_only: TrainOnly = None,
    lora: Lora = None,
    lora_layers: LoraLayers = None,
    lora_alpha: LoraAlpha = None,
    lora_dropout: Annotated[
        float | None,
        typer.Option(metavar="RATIO", help="Dropout on the inputs of adapters (default: 0)."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run one batch and print the gradient norms of all weights, without training.",
        ),
    ] = False,
    straight_through: Annotated[
        bool,
        typer.Option(
            "--straight-through",
            help="Use straight-through gradients for QuantizeLinear and DequantizeLinear.",
        ),
    ] = False,
    dropout: Annotated[
        bool,
        typer.Option(
            "--dropout/--no-dropout",
            help="Whether Dropout nodes without a training_mode drop elements.",
        ),
    ] = True,
    accumulate: Annotated[int | None, step_option("accumulate")] = None,
    clip: Annotated[float | None, step_option("clip")] = None,
    loss_scale: Annotated[str | None, step_option("loss_scale")] = None,
    recompute: Annotated[str | None, step_option("recompute")] = None,
    precision: Annotated[str | None, step_option("precision")] = None,
    determinism: Annotated[str | None, step_option("determinism")] = None,
    quantize: Annotated[str | None, step_option("quantize")] = None,
    replicas: Annotated[int | None, step_option("replicas")] = None,
    stages: Annotated[int | None, step_option("stages")] = None,
    threads: Threads = 1,
    quick: Annotated[
        bool | None,
        typer.Option(
            "--quick/--no-quick",
            help="Start with unoptimized programs while tuned ones are compiled in the background; "
            "the default with --determinism portable.",
        ),
    ] = None,
    folders: Folders = None,
) -> None:
    """
    Train a model on arrays.

    \b
    popgraph train net.pgraph x=x.npy labels=labels.npy --epochs 5 -o trained.onnx
    popgraph train net.onnx --data x=x.npy --data labels=labels.npy \\
        --loss 'nll(y, labels)' --optimizer 'Adam(0.001)' --batch 64 -o trained.onnx
    popgraph train net.onnx x=x.npy labels=labels.npy --loss cross_entropy \\
        --optimizer 'Adam(0.001)' --metric accuracy --validation 0.1 --patience 3 \\
        --epochs 50 --log run.csv -o trained.onnx
    popgraph train net.pgraph x=x.npy labels=labels.npy --epochs 50 \\
        --checkpoint run.ckpt --every 10min --resume -o trained.onnx
    popgraph train net.pgraph x=x.npy labels=labels.npy --batch 64 --accumulate 8 \\
        --clip 1.0 --recompute checkpoints -o trained.onnx
    popgraph train net.onnx x=x.npy labels=labels.npy --loss cross_entropy \\
        --optimizer 'AdamW(0.001)' --lora 8 --lora-layers '*.q_proj.*' -o tuned.onnx
    mpirun -n 4 popgraph train net.pgraph x=x.npy labels=labels.npy --batch 64 -o trained.onnx

    A .pgraph file can define loss and optimizer in its `train` section; the options override it. A
    loss is a name (applied to the output and to the array that is not an input), an expression or a
    value of the model. The losses are cross_entropy, nll, nll_loss, categorical_crossentropy, bce,
    bce_with_logits, mse, l1, huber and identity; the optimizers SGD, Adam, AdamW, AdamNoBias, Lamb,
    LambNoBias, AdaMax, RMSProp, CenteredRMSProp, AdaGrad and AdaDelta; the metrics accuracy, top3,
    top5 (any number), binary_accuracy, f1, mae, mse and r2; the schedules constant, linear, cosine,
    step and exponential. Case is ignored, and names of Keras and PyTorch are accepted:
    docs/training.md lists them with all defaults.

    A table shows which weights are trained, and why the others are not: running statistics,
    settings of operators and constants of an exporter; --freeze and --train-only (repeatable)
    override this. With --lora, low-rank adapters are trained, and the model that -o writes has them
    (`popgraph lora tuned.onnx --merge` adds them to the weights). BatchNormalization and Dropout
    are in training mode, whatever mode they were exported in; a BatchNormalization whose running
    statistics are frozen uses these. With --no-dropout, Dropout keeps all elements unless its
    training_mode is true. The file that -o writes is for inference.

    The last batch of an epoch has the remaining samples; a model with a fixed batch size drops them
    (they differ from epoch to epoch). With --monitor or --patience, the final weights are those of
    the best epoch.

    --check runs one batch and exits with status 1 if something is wrong: a loss or gradient that is
    not finite, a gradient of zero, inputs of a loss that are not probabilities, labels outside the
    classes.

    Ctrl-C and SIGTERM end the current step, write the checkpoint and exit with 130 and 143. The
    same command with --resume continues with the same bits as without the interruption (except with
    --quick and machine determinism: the step at which tuned programs take over, and with it the
    order of summation, varies).

    Under mpirun, each rank takes its rows of every batch and all make the same step; the first one
    writes and prints. A checkpoint can be resumed with any number of ranks.
    """
    arrays = models.read_arrays([*(data or ()), *(more or ())], "--data")
    # Python may lose Ctrl-C during an import.
    with terminating_on_sigint(), while_importing():
        from popgraph.cli.training_screen import screen
        from popgraph.passes.base import Compilation
        from popgraph.support.ranks.world import world
        from popgraph.training.callbacks import Callback, Log
        from popgraph.training.tensorboard import TensorBoard
        from popgraph.training.trainer import Trainer

        if view or report is not None:
            from popgraph.viewer.training_page import TrainingPage
        if lora is not None:
            from popgraph.training.lora_model import opened

    if output is not None and output.suffix not in models.SAVERS:
        raise typer.BadParameter(
            f"{output.name!r} must end in {', '.join(models.SAVERS)}", param_hint="--output"
        )
    for path, option in (
        (output, "--output"),
        (log, "--log"),
        (checkpoint, "--checkpoint"),
        (report, "--report"),
    ):
        if path is not None:  # said before hours of training
            models.check_place(path, option)
    adapters = lora_settings(lora, lora_layers, lora_alpha, lora_dropout, seed)
    trainer = Trainer(
        model if adapters is None else adapters.apply(opened(model)),
        loss,
        optimizer,
        schedule=schedule,
        freeze=freeze or (),
        train_only=train_only or (),
        metrics=metric or (),
        prediction=prediction,
        indices=None if indices is None else indices.value,
        straight_through=straight_through,
        dropout=dropout,
        accumulate=accumulate,
        clip=clip,
        loss_scale=loss_scale if loss_scale is None else _number_or_word(loss_scale),
        recompute=recompute,
        precision=precision,
        determinism=determinism,
        quantize=quantize,
        replicas=replicas,
        stages=stages,
        backend=backend,
        threads=threads,
        quick=quick,
    )
    if value:
        trainer.values.update(models.values(value, models.specs_of(trainer.module)))
    held_out = None if validation is None else _held_out(validation)
    with _report_interruptions(None):
        trainer.prepare(arrays, batch=batch)
    is_first = world().is_first
    for name, told in trainer.converted.items() if is_first else ():
        note(f"{name}: {told}")
    typer.echo(f"{trainer.selection}\n\noptimizer {trainer.optimizer}\n")
    if check:
        _checked(trainer.check(arrays, batch=batch))
        return
    if output is None and checkpoint is None and is_first:
        note("the trained model is not saved: add -o trained.onnx")
    callbacks: list[Callback] = []
    if log is not None and is_first:
        callbacks.append(Log(log))
    if tensorboard is not None and is_first:
        callbacks.append(TensorBoard(tensorboard))
    if (view or report is not None) and is_first:
        callbacks.append(TrainingPage(report, view, model.name, typer.echo))
    with screen(epochs, curves) as shown, _report_interruptions(checkpoint):
        trainer.fit(
            arrays,
            epochs=epochs,
            batch=batch,
            seed=seed,
            validation=held_out,
            monitor=monitor,
            patience=patience,
            checkpoint=checkpoint,
            every=int(every) if every is not None and every.isdecimal() else every,
            resume=resume,
            callbacks=[*callbacks, shown],
        )
    if resume and trainer.planned is not None and trainer.planned <= 0 and is_first:
        note(f"{checkpoint} ends where this training does: nothing is left to do")
    if trainer.stopped:
        typer.echo(f"stopped: {trainer.stopped}")
    if log is not None:
        typer.echo(f"a row for each epoch is in {log}")
    if output is not None and is_first:
        models.save(output, trainer.inference_module(), Compilation(trainer.task.weights))
        typer.echo(f"trained weights are in {output}")


def _checked(found: Check) -> None:
    typer.echo(str(found))
    if found.problems:
        raise typer.Exit(1)


@contextmanager
def _report_interruptions(checkpoint: Path | None) -> Iterator[None]:
    """Reports an interruption, and exits with the code of the signal."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else error.code
        kept = "nothing is saved" if checkpoint is None else f"{error}; --resume continues it"
        note(f"the training was interrupted: {kept}")
        raise typer.Exit(code if isinstance(code, int) else 1) from None


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _held_out(text: str) -> float | dict[str, Array]:
    """A fraction of the samples, or separate arrays."""
    from popgraph.cli import models

    if "=" in text:
        return models.read_arrays(text.split(","), "--validation")
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a number nor arrays, x=x.npy,labels=labels.npy",
            param_hint="--validation",
        ) from None
