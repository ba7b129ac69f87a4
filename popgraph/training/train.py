"""`popgraph.train`: trains a model with a loss, an optimizer and data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from popgraph.backends.registry import DEFAULT
from popgraph.builder.pgraph import Schedule
from popgraph.compiler import Model
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.training.callbacks import Callback
from popgraph.training.loss_expressions import ClassWeights
from popgraph.training.metrics import AnyMetric
from popgraph.training.problem import Optimizer
from popgraph.training.samples import Data
from popgraph.training.trainer import Trainer


@check_types("loss")
def train(
    model: Model,
    data: Data,
    loss: str | None = None,
    optimizer: Optimizer = None,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    validation: float | Data | None = None,
    monitor: str | None = None,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    every: int | str | None = None,
    resume: bool | str | Path = False,
    callbacks: Sequence[Callback] = (),
    schedule: str | Schedule | Callable[[int], float] | None = None,
    class_weights: ClassWeights | None = None,
    freeze: Sequence[str] | str = (),
    train_only: Sequence[str] | str = (),
    metrics: Iterable[AnyMetric] | AnyMetric = (),
    prediction: str | None = None,
    target: str | None = None,
    values: Mapping[str, Array] | None = None,
    indices: str | None = None,
    straight_through: bool = False,
    dropout: bool = True,
    accumulate: int | None = None,
    clip: float | None = None,
    loss_scale: float | str | None = None,
    recompute: str | None = None,
    precision: str | None = None,
    determinism: str | None = None,
    quantize: str | None = None,
    replicas: int | None = None,
    stages: int | None = None,
    backend: str = DEFAULT,
    threads: int = 1,
    quick: bool | None = None,
    bounds: Mapping[str, int] | None = None,
) -> Trainer:
    """
    Trains a model: `train("net.pgraph", (x, labels), "nll", "Adam(0.001)", epochs=5)`.

    See `Trainer` for models, losses and optimizers, and `Trainer.fit` for data. The returned
    trainer has the `history`; it can evaluate, predict, save the model, and continue training.
    """
    trainer = Trainer(
        model,
        loss,
        optimizer,
        schedule=schedule,
        class_weights=class_weights,
        freeze=freeze,
        train_only=train_only,
        metrics=metrics,
        prediction=prediction,
        target=target,
        values=values,
        indices=indices,
        straight_through=straight_through,
        dropout=dropout,
        accumulate=accumulate,
        clip=clip,
        loss_scale=loss_scale,
        recompute=recompute,
        precision=precision,
        determinism=determinism,
        quantize=quantize,
        replicas=replicas,
        stages=stages,
        backend=backend,
        threads=threads,
        quick=quick,
        bounds=bounds,
    )
    trainer.fit(
        data,
        epochs=epochs,
        steps=steps,
        batch=batch,
        shuffle=shuffle,
        seed=seed,
        drop_last=drop_last,
        validation=validation,
        monitor=monitor,
        patience=patience,
        checkpoint=checkpoint,
        every=every,
        resume=resume,
        callbacks=callbacks,
    )
    return trainer
