"""`popgraph lora`: adds low-rank adapters to a model, saves them alone, or merges them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli import models
from popgraph.cli.options import Folders, LoraAlpha, LoraLayers, ModelFile, lora_settings
from popgraph.cli.report import note


def command(
    model: ModelFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A model (.onnx, .pgraph), or its adapters alone (.safetensors, or a folder).",
        ),
    ],
    rank: Annotated[
        int | None, typer.Option(help="Add adapters of this rank to the model.")
    ] = None,
    layers: LoraLayers = None,
    alpha: LoraAlpha = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first values.")] = 0,
    adapters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Add saved adapters to the model."),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add the products of the adapters to the weights.")
    ] = False,
    folders: Folders = None,
) -> None:
    """
    Add low-rank adapters (LoRA) to a model, save them alone, or merge them into its weights.

    \b
    popgraph lora net.onnx --rank 4 --layers '*.q_proj.*' -o adapted.onnx
    popgraph lora tuned.onnx -o adapters.safetensors
    popgraph lora net.onnx --adapters adapters.safetensors --merge -o merged.onnx
    popgraph lora tuned.onnx --merge -o merged.onnx

    Training changes only the adapters of a model that has some. Without --layers, each matrix gets
    an adapter that is smaller than itself. A folder after -o gets the two files of PEFT.
    """
    is_model = output.suffix in models.SAVERS
    if rank is not None and adapters is not None:
        raise typer.BadParameter(
            "adds new adapters, --rank, or saved ones", param_hint="--adapters"
        )
    if merge and not is_model:
        raise typer.BadParameter(
            f"writes a model: {', '.join(models.SAVERS)}", param_hint="--merge"
        )
    if output.suffix:
        models.check_place(output, "--output")
    for option, given in (("--layers", layers), ("--alpha", alpha if adapters is None else None)):
        if given and rank is None:
            raise typer.BadParameter("requires --rank", param_hint=option)
    settings = lora_settings(rank, layers, None if adapters else alpha, seed=seed)
    from popgraph.passes.base import Compilation
    from popgraph.training.lora import load_lora, merge_lora, save_lora
    from popgraph.training.lora_model import opened

    if adapters is not None:
        made = load_lora(model, adapters, alpha=alpha)
    else:
        made = opened(model) if settings is None else settings.apply(opened(model))
    if not is_model:
        save_lora(made, output)
        typer.echo(f"{made}\nwrote {output}")
        return
    if merge:
        made = merge_lora(made)
    elif settings is None and adapters is None:
        raise typer.BadParameter(
            "one of --rank, --adapters and --merge makes another model", param_hint="--output"
        )
    else:
        typer.echo(str(made))
    models.save(output, made.read, Compilation(made.weights))
    if made.document is not None and made.document.training is not None:
        note(f"{output} has no `train` section; --lora of train and export keeps it")
    typer.echo(f"wrote {output}")
