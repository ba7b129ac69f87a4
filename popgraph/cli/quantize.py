"""`popgraph quantize`: writes a quantized model, and prints errors and gains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli import models
from popgraph.cli.options import Folders, ModelFile, Threads
from popgraph.cli.run import BackendChoice

if TYPE_CHECKING:
    from popgraph.support.arrays import Array


def command(
    model: ModelFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.onnx", help="Output file.")
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            "-d",
            metavar="[NAME=]FILE.npy",
            help="Samples of an input, along the first axis, for calibration.",
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE", help="static (requires --data), dynamic, or weight_only (4 bits)."
        ),
    ] = "static",
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help="Calibration: minmax, percentile, entropy or mse."),
    ] = "minmax",
    percentile: Annotated[
        float, typer.Option(help="Share of values inside the range, for --method percentile.")
    ] = 99.999,
    activation_type: Annotated[
        str, typer.Option(metavar="TYPE", help="uint8, int8, uint16 or int16.")
    ] = "uint8",
    weight_type: Annotated[str, typer.Option(metavar="TYPE", help="int8 or uint8.")] = "int8",
    per_channel: Annotated[
        bool, typer.Option(help="One scale per output channel of a weight, or one per weight.")
    ] = True,
    activation_symmetric: Annotated[
        bool, typer.Option("--activation-symmetric", help="Activations have no zero point.")
    ] = False,
    weight_symmetric: Annotated[
        bool,
        typer.Option(
            "--weight-symmetric/--weight-asymmetric", help="Whether weights have no zero point."
        ),
    ] = True,
    reduce_range: Annotated[
        bool,
        typer.Option(
            "--reduce-range",
            help="Weights of 7 bits: sums of onnxruntime saturate with 8 on CPUs without VNNI.",
        ),
    ] = False,
    operator: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Quantize only these operators: Conv (repeatable)."),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Quantize only these nodes: 'block1.*'."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Leave these nodes in floats: 'head.*'."),
    ] = None,
    bits: Annotated[int, typer.Option(help="Bits of weight_only weights: 4 or 8.")] = 4,
    block_size: Annotated[
        int, typer.Option(help="Numbers that share a scale, for weight_only.")
    ] = 32,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Operator of weight_only: MatMulNBits, or QDQ (DequantizeLinear, opset 21).",
        ),
    ] = None,
    accuracy_level: Annotated[
        int, typer.Option(help="4 lets MatMulNBits round activations to int8 in a run.")
    ] = 0,
    time: Annotated[
        bool, typer.Option("--time", help="Also measure a run before and after.")
    ] = False,
    threads: Threads = 1,
    backend: BackendChoice = "c",
    folders: Folders = None,
) -> None:
    """
    Quantize a trained model to int8, or its weights to 4 bits, and print errors and gains.

    \b
    popgraph quantize net.onnx --data x.npy -o int8.onnx
    popgraph quantize net.onnx --data x=x.npy --method percentile --exclude 'head.*' -o int8.onnx
    popgraph quantize net.onnx --mode dynamic -o int8.onnx
    popgraph quantize net.onnx --mode weight_only --block-size 64 -o int4.onnx

    PopGraph, onnxruntime and other runtimes run the result.
    """
    from popgraph.compiler.saving import check_kind

    check_kind(output)
    models.check_place(output, "--output")
    calibration = _data(data or ())
    from popgraph.quantization.quantize import quantize

    made = quantize(
        model,
        calibration,
        mode=mode,
        per_channel=per_channel,
        activation_type=activation_type,
        weight_type=weight_type,
        activation_symmetric=activation_symmetric,
        weight_symmetric=weight_symmetric,
        reduce_range=reduce_range,
        calibrate_method=method,
        percentile=percentile,
        op_types_to_quantize=operator,
        nodes_to_quantize=include,
        nodes_to_exclude=exclude,
        bits=bits,
        block_size=block_size,
        quant_format=form,
        accuracy_level=accuracy_level,
        measure_time=time,
        threads=threads,
        backend=backend,
    )
    made.save(output)
    typer.echo(str(made.report))
    typer.echo(f"wrote {output}")


def _data(texts: list[str] | tuple[str, ...]) -> dict[str, Array] | Array | None:
    """The arrays by input, or the only array without a name; None without any."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return models.read_array(texts[0])
    return models.read_arrays(texts, "--data")
