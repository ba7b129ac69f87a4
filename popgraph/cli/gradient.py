"""`popgraph gradient`: writes the gradients of a model, or a training step, as an ONNX model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli import models
from popgraph.cli.options import Dimensions, Folders, Freeze, TrainOnly, Values, existing
from popgraph.support.writing import write_file


class Product(StrEnum):
    """The products with the Jacobian."""

    VJP = "vjp"
    JVP = "jvp"


def _existing(context: typer.Context, path: Path | None) -> Path | None:
    return None if path is None else existing(context, path)


def command(
    model: Annotated[
        Path | None, typer.Argument(help="An .onnx or .pgraph file.", callback=_existing)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.onnx", help="Output file.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="A name (cross_entropy, mse ...), an expression ('nll(y, labels)') or a value."
        ),
    ] = None,
    wrt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Input, weight or inner value to differentiate by (default: trained weights).",
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(help="Export a training step with this optimizer: 'Adam(0.001)'."),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=TYPE", help="Input that the loss adds: labels=i64[32]."
        ),
    ] = None,
    dim: Dimensions = None,
    value: Values = None,
    prediction: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Output to which a named --loss applies."),
    ] = None,
    freeze: Freeze = None,
    train_only: TrainOnly = None,
    product: Annotated[
        Product | None,
        typer.Option(
            case_sensitive=False,
            help="Export a product with the Jacobian instead: vjp (reverse mode), jvp (forward).",
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--of", metavar="NAME", help="Output that --product differentiates (default: all)."
        ),
    ] = None,
    straight_through: Annotated[
        bool,
        typer.Option("--straight-through", help="Let gradients pass QuantizeLinear unchanged."),
    ] = False,
    dropout: Annotated[
        bool, typer.Option(help="Whether Dropout drops elements, as in training.")
    ] = True,
    listing: Annotated[
        bool, typer.Option("--list", help="List the operations with their ONNX forms.")
    ] = False,
    folders: Folders = None,
) -> None:
    """
    Write the forward and backward pass of a model as a model of standard ONNX operators.

    \b
    popgraph gradient net.onnx --loss cross_entropy --input labels=i64[32] --dim N=32 -o grad.onnx
    popgraph gradient net.onnx --loss loss --wrt x -o grad.onnx
    popgraph gradient net.pgraph --optimizer 'Adam(0.001)' --dim N=32 -o step.onnx
    popgraph gradient net.onnx --product jvp --wrt x --dim N=32 -o jvp.onnx

    Any runtime of ONNX runs the result. Gradients are the outputs `Gradient___NAME`; the weights
    that they belong to are inputs with a default. With --optimizer, the new values of weights and
    optimizer state are the outputs `UpdatedVar___NAME`. With --product vjp, `Gradient___NAME` of
    each output is an input; with --product jvp, `Tangent___NAME` of each --wrt is an input and that
    of each output an output.
    """
    if listing:
        _list()
        return
    if model is None:
        raise typer.BadParameter("name a model, or pass --list", param_hint="MODEL")
    if output is None:
        raise typer.BadParameter("name the file to write: -o grad.onnx", param_hint="--output")
    if output.suffix != ".onnx":
        raise typer.BadParameter(f"{output.name!r} must end in .onnx", param_hint="--output")
    models.check_place(output, "--output")
    module, _, _ = models.opened(model, dim, value)
    sizes = models.sizes(dim or ())
    values = models.values(value, models.specs_of(module)) if value else {}
    if product is not None:
        of_training = {
            "--loss": loss,
            "--optimizer": optimizer,
            "--input": input,
            "--prediction": prediction,
            "--freeze": freeze,
            "--train-only": train_only,
        }
        for name, given in of_training.items():
            if given:
                raise typer.BadParameter(f"--product has no {name}", param_hint="--product")
        from popgraph.training.jacobian_products import onnx_jvp, onnx_vjp

        export = onnx_vjp if product is Product.VJP else onnx_jvp
        made = export(
            model,
            wrt or None,
            outputs=outputs or None,
            sizes=sizes,
            values=values,
            straight_through=straight_through,
        )
    else:
        if outputs:
            raise typer.BadParameter("belongs to --product vjp or jvp", param_hint="--of")
        from popgraph.training.gradient_model import onnx_gradient

        made = onnx_gradient(
            model,
            loss,
            wrt=wrt or None,
            optimizer=optimizer,
            inputs=models.pairs(input or (), "--input"),
            sizes=sizes,
            values=values,
            prediction=prediction,
            freeze=freeze or (),
            train_only=train_only or (),
            straight_through=straight_through,
            dropout=dropout,
        )
    write_file(output, [made.SerializeToString()])
    inputs = [one.name for one in made.graph.input]
    held = {one.name for one in made.graph.initializer}
    needed = [name for name in inputs if name not in held]
    defaults = [name for name in inputs if name in held]
    typer.echo(f"{output}: {len(made.graph.node)} nodes")
    for word, names in (
        ("inputs", needed),
        ("with a default", defaults),
        ("outputs", [one.name for one in made.graph.output]),
    ):
        if names:
            typer.echo(f"  {word}: {', '.join(names)}")


def _list() -> None:
    from popgraph.cli.pager import show
    from popgraph.passes.graphcore.to_onnx import listed_forms
    from popgraph.support.tables import table

    show(table([("operation", "in ONNX"), *listed_forms()]))
