"""`popgraph generate`: prints the tokens that follow a prompt."""

from __future__ import annotations

from typing import Annotated

import typer

from popgraph.cli.options import (
    Activations,
    ActivationsChoice,
    Folders,
    ModelFile,
    Threads,
    options,
)


def tokens(text: str) -> list[int]:
    """Parses `1,2,3`."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of integers such as 1,2,3") from error


def command(
    model: ModelFile,
    ids: Annotated[str, typer.Option("--ids", metavar="1,2,3", help="Token ids of the prompt.")],
    max_new_tokens: Annotated[int, typer.Option(min=0, help="Number of tokens to generate.")] = 20,
    temperature: Annotated[
        float, typer.Option(help="Sampling temperature; 0 selects the most likely token.")
    ] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the smallest set of tokens with at least this probability."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="2,13", help="Stop after this token sequence (repeatable)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sampling.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Maximum number of tokens, including the prompt.")
    ] = None,
    activations: ActivationsChoice = Activations.FLOAT,
    threads: Threads = 1,
    folders: Folders = None,
) -> None:
    """
    Print the tokens with which a causal language model continues a prompt.

    \b
    popgraph generate model.onnx --ids 464,3290 --max-new-tokens 50
    popgraph generate model.onnx --ids 464,3290 --temperature 0.8 --top-p 0.95 --seed 1
    popgraph generate model.onnx --ids 1,2,3 --stop 2 --max-length 1024
    popgraph generate SmolLM2-135M/ --ids 1,2,3
    """
    prompt, ends = tokens(ids), [tokens(one) for one in stop or ()]
    from popgraph.generation.decoder import Decoder

    decoder = Decoder(
        model, max_length=max_length, threads=threads, options=options(activations=activations)
    )
    written = decoder.stream(
        prompt,
        max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=ends,
        seed=seed,
    )
    for at, token in enumerate(written):
        typer.echo(f"{',' * (at > 0)}{token}", nl=False)
    typer.echo()
