"""`popgraph scale`: predicts how a training step scales to many ranks."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli.options import Dimensions, Folders, ModelFile, Threads, Values

if TYPE_CHECKING:
    from popgraph.measure.scale import MeasuredTraining, Prediction, Step
    from popgraph.passes.options import Training
    from popgraph.support.ranks.communicator import Communicator

_RATES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def command(
    model: ModelFile,
    dim: Dimensions = None,
    value: Values = None,
    ranks: Annotated[int, typer.Option(min=2, help="Maximum number of ranks.")] = 1024,
    bandwidth: Annotated[
        str,
        typer.Option(metavar="10G,25G", help="Bandwidths of a rank's link, in bits per second."),
    ] = "25G",
    latency: Annotated[str, typer.Option(metavar="5us", help="Latency of a message.")] = "5us",
    addition: Annotated[
        str,
        typer.Option(
            metavar="40G", help="Throughput of the reduction on a rank, in bits per second."
        ),
    ] = "40G",
    bucket: Annotated[
        str, typer.Option(metavar="4M", help="Bytes of gradients per message.")
    ] = "4M",
    type_: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="Send gradients as f16 or bf16.")
    ] = "",
    threads: Threads = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Number of measured steps.")] = 10,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON.")
    ] = None,
    svg_file: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write a chart of the efficiency.")
    ] = None,
    folders: Folders = None,
) -> None:
    """
    Predict how training scales to many ranks, from a step measured here.

    \b
    popgraph scale net.pgraph --dim N=16 --ranks 1024 --bandwidth 25G
    popgraph scale net.pgraph --dim N=16 --bandwidth 10G,25G,100G --svg scale.svg --json scale.json
    mpirun -n 2 popgraph scale net.pgraph --dim N=16

    The step is compiled as for several ranks and timed call by call: the computation before each
    message is sent, and after each message that the rank waits for. The model then sends messages
    one at a time, each for the duration of an all-reduce of its bytes, while the rank continues to
    compute. The efficiency is relative to the throughput of as many ranks without communication. N
    is the batch of each rank.

    The model ignores jitter, contention on links, and the cost of sending on the cores. Under
    mpirun, the same step runs on the ranks of the job, and the command compares the prediction with
    the measured time.
    """
    from popgraph.cli import models
    from popgraph.measure.scale import MeasuredTraining, Network, efficiency_chart, predictions
    from popgraph.passes.options import Options
    from popgraph.support.charts.svg import svg
    from popgraph.support.ranks.world import world
    from popgraph.support.writing import write_text

    for path, option in ((json_file, "--json"), (svg_file, "--svg")):
        if path is not None:
            models.check_place(path, option)
    networks = {
        f"{text}bit/s": Network(
            _quantity(text, _RATES, "--bandwidth") / 8,
            _quantity(latency, _TIMES, "--latency"),
            _quantity(addition, _RATES, "--addition") / 8,
        )
        for text in bandwidth.split(",")
    }
    size = int(_quantity(bucket, _SIZES, "--bucket"))
    module, compilation, program = models.opened(model, dim, value, train=True, assumed=True)
    assert program is not None, "a step of training was asked for"
    options = program.options(Options(bucket_bytes=size))
    assert options.training is not None, "a step trains"
    options = replace(options, training=_with_message_type(options.training, type_))
    trained = MeasuredTraining(module, compilation, options, threads)
    here = world()
    if here.size > 1:
        typer.echo(_compared(trained, here, rounds))
        return
    step = trained.measured(rounds)
    found = {name: predictions(step, network, ranks) for name, network in networks.items()}
    typer.echo(_summary(step, found))
    if json_file is not None:
        write_text(json_file, json.dumps(_numbers(step, networks, found), indent=1) + "\n")
    if svg_file is not None:
        title = f"{model.name}: efficiency in %, by ranks (powers of two)"
        write_text(svg_file, svg(efficiency_chart(title, found)) + "\n")


def _with_message_type(training: Training, type_: str) -> Training:
    return replace(training, optimizer=replace(training.optimizer, message_type=type_))


def _quantity(text: str, units: dict[str, Any], option: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip())
    if found is None or found[2] not in units or not float(found[1]):
        listed = ", ".join(f"5{unit}" for unit in units)
        raise typer.BadParameter(f"{text!r} is not one of {listed}", param_hint=option)
    return float(found[1]) * float(units[found[2]])


def _summary(step: Step, found: dict[str, list[Prediction]]) -> str:
    from popgraph.support.amounts import bytes_text, counted
    from popgraph.support.tables import table

    messages = step.messages
    sizes = ", ".join(bytes_text(size) for size in messages[:4]) + (", ..." if messages[4:] else "")
    lines = [
        f"a step takes {step.alone * 1000.0:.3f} ms alone and sends "
        f"{counted(len(messages), 'message')}: {sizes}"
    ]
    for name, rows in found.items():
        heading = ("ranks", "step ms", "efficiency", "speedup", "messages ms", "hidden")
        cells = [
            (
                f"{one.ranks}",
                f"{one.seconds * 1e3:.3f}",
                f"{one.efficiency:.1%}",
                f"{one.efficiency * one.ranks:.1f}",
                f"{one.communication * 1e3:.3f}",
                f"{one.hidden:.0%}",
            )
            for one in rows
        ]
        widths = [max(map(len, column)) for column in zip(heading, *cells, strict=True)]
        rows_ = [
            tuple(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in (heading, *cells)
        ]
        lines += ["", f"at {name}", table(rows_)]
    return "\n".join(lines)


def _numbers(step: Step, networks: Any, found: dict[str, list[Prediction]]) -> dict[str, Any]:
    return {
        "alone": step.alone,
        "computing": step.computing,
        "messages": step.messages,
        "networks": {name: asdict(one) for name, one in networks.items()},
        "predictions": {name: [asdict(one) for one in rows] for name, rows in found.items()},
    }


def _compared(trained: MeasuredTraining, here: Communicator, rounds: int) -> str:
    """Compares the predicted step with the measured one on the ranks of this job."""
    from popgraph.measure.scale import SAMPLE_BYTES, measured_here, network_here
    from popgraph.support.amounts import bytes_text

    network = network_here(here, rounds)
    step = measured_here(trained, here, rounds)
    predicted = step.seconds(network, here.size) * 1e3
    measured = trained.step_here(here, rounds) * 1e3
    told = network.all_reduce(SAMPLE_BYTES, here.size) * 1e3
    return (
        f"{here.size} ranks here: a step is predicted to take {predicted:.3f} ms and takes "
        f"{measured:.3f} ms ({measured / predicted:.2f} times that); alone it takes "
        f"{step.alone * 1e3:.3f} ms; an all-reduce of {bytes_text(SAMPLE_BYTES)} takes "
        f"{told:.3f} ms, a message {network.latency * 1e6:.1f} us"
    )
