"""Benchmarks two ranks of one thread beside one rank of two threads and PyTorch's DDP, as JSON."""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chosen import one_of
from rounds import Contestant, answer_rounds

if TYPE_CHECKING:
    from popgraph.measure.scale import MeasuredTraining
    from popgraph.support.arrays import Array
    from popgraph.support.ranks.communicator import Communicator

ROUNDS = 3
"""Rounds per contestant."""
NETWORKS = {"resnet18": 16, "transformer": 8}
"""{published network: global batch size}."""


@dataclass(frozen=True)
class Row:
    """A contestant: program, ranks, threads per rank, and shards of a batch."""

    name: str
    kind: str
    ranks: int
    threads: int = 1
    shares: int = 2


DDP = "PyTorch DDP, gloo, two ranks"
ROWS = (
    Row("two ranks of one thread", "popgraph", 2),
    Row("one rank of two threads", "popgraph", 1, threads=2, shares=1),
    Row(DDP, "torch", 2),
    Row("four ranks of one thread, twice the batch", "popgraph", 4),
)


def known(name: str) -> str:
    """The type of an argument that names a network of training.py."""
    from training import CASES

    return one_of("network", CASES)(name)


def own_steps(arguments: argparse.Namespace) -> None:
    """Our training step on the ranks that run this; the first one fills the cache for all."""
    from training import CASES
    from training import Trained as Network

    from popgraph.measure.scale import MeasuredTraining
    from popgraph.support.ranks.world import world

    here = world()
    case = CASES[arguments.name]
    trained = Network(arguments.name, replace(case, shape=(arguments.batch, *case.shape[1:])))
    step, arrays = MeasuredTraining(*trained.task(), arguments.threads), trained.arrays
    if not here.is_first:
        here.barrier(patient=True)
    program = step.request(here.size).executable()
    if here.is_first:
        here.barrier(patient=True)
    ready = found_here(step, here, arrays, arguments) if here.size > 1 else {}
    answer_rounds(
        arguments.folder,
        here.is_first,
        ready,
        lambda: timed(
            lambda: program.run(arrays),
            arguments.seconds,
            here.barrier,
            here.broadcast,
            here.gather,
        ),
    )


def found_here(
    step: MeasuredTraining,
    here: Communicator,
    arrays: dict[str, Array],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """The inputs of the scaling model: the network parameters here, and the step if requested."""
    from popgraph.measure.scale import measured_here, network_here

    found: dict[str, Any] = {"network": asdict(network_here(here, 10))}
    if arguments.model:
        alone = step.request(1).executable()
        how = (arguments.seconds, here.barrier, here.broadcast, here.gather)
        found["alone"] = timed(lambda: alone.run(arrays), *how)
        found["step"] = asdict(measured_here(step, here, 2))
    return found


def their_steps(arguments: argparse.Namespace) -> None:
    """Steps of DistributedDataParallel over gloo, one thread on each rank."""
    import torch
    from torch import distributed
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel
    from training import CASES, LEARNING_RATE

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    case = CASES[arguments.name]
    torch.manual_seed(0)
    network = DistributedDataParallel(case.network())
    x = torch.randn((arguments.batch, *case.shape[1:]))
    labels = torch.randint(0, case.classes, x.shape[:1])
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(network(x), labels).backward()
        optimizer.step()

    def agreed(count: int) -> int:
        told = torch.tensor([count])
        distributed.broadcast(told, 0)
        return int(told[0])

    def gathered(value: float) -> list[float]:
        found = [torch.zeros(1, dtype=torch.float64) for _ in range(distributed.get_world_size())]
        distributed.all_gather(found, torch.tensor([value], dtype=torch.float64))
        return [float(one[0]) for one in found]

    is_first = distributed.get_rank() == 0
    how = (arguments.seconds, distributed.barrier, agreed, gathered)
    answer_rounds(arguments.folder, is_first, {}, lambda: timed(step, *how))
    distributed.destroy_process_group()


def timed(
    step: Callable[[], object],
    seconds: float,
    barrier: Callable[[], object],
    agreed: Callable[[int], int],
    gathered: Callable[[float], list[float]],
) -> dict[str, float]:
    """Wall time of a step, and CPU time on all ranks, which run the same number of steps."""
    step()
    barrier()
    start = time.perf_counter()
    step()
    count = agreed(max(2, min(200, int(seconds / max(1e-6, time.perf_counter() - start)))))
    times, before = [], time.process_time()
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    spent = (time.process_time() - before) / count
    return {
        "seconds": statistics.median(times),
        "best_seconds": min(times),
        "cpu_seconds": sum(gathered(spent)),
    }


def started(arguments: argparse.Namespace, folder: Path, row: Row) -> Contestant:
    """The processes of a row, ready for their first round."""
    own = [sys.executable, __file__, arguments.name, "--worker", row.kind]
    own += ["--threads", str(row.threads), "--batch", str(arguments.batch // row.shares)]
    own += ["--seconds", str(arguments.seconds), *(["--model"] if row is ROWS[0] else [])]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    if row.kind == "popgraph":
        mpirun = Path(sys.executable).parent / "mpirun"
        launcher = [str(mpirun) if mpirun.exists() else "mpirun", "--bind-to", "none"]
        command = [*launcher, "-n", str(row.ranks), *own] if row.ranks > 1 else own
        return Contestant(row.name, folder, [(command, environment)])
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(row.ranks)}
    each = [{**environment, **shared, "RANK": str(rank)} for rank in range(row.ranks)]
    return Contestant(row.name, folder, [(own, one) for one in each])


BANDWIDTHS = {"10 Gbit/s": 10e9, "25 Gbit/s": 25e9, "100 Gbit/s": 100e9}
LATENCY, ADDITION = 5e-6, 40e9 / 8
MOST_RANKS = 1024


def scaled(name: str, batch: int, file: Path, rounds: int) -> str:
    """Predictions of the scaling model for a network with a whole batch per rank."""
    from training import CASES, Trained

    from popgraph.measure.scale import MeasuredTraining, Network, efficiency_chart, predictions
    from popgraph.support.charts.svg import svg
    from popgraph.support.tables import markdown_table

    case = CASES[name]
    trained = Trained(name, replace(case, shape=(batch, *case.shape[1:])))
    step = MeasuredTraining(*trained.task()).measured(rounds)
    found = {
        bandwidth: predictions(step, Network(rate / 8, LATENCY, ADDITION), MOST_RANKS)
        for bandwidth, rate in BANDWIDTHS.items()
    }
    title = f"{name}, batch {batch} per rank: efficiency in %, by ranks (powers of 2)"
    file.write_text(svg(efficiency_chart(title, found)) + "\n")
    rows = [
        [str(one.ranks), *(f"{rows[at].efficiency:.1%}" for rows in found.values())]
        for at, one in enumerate(next(iter(found.values())))
    ]
    told = sum(step.messages) / 1e6
    head = (
        f"{name}, batch {batch}: a step of {step.alone * 1e3:.1f} ms, "
        f"{len(step.messages)} messages, {told:.1f} MB"
    )
    return f"{head}\n\n{markdown_table(['ranks', *found], rows, 'rrrr')}"


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures all contestants alternately, then compares the scaling model with real ranks."""
    with tempfile.TemporaryDirectory() as folder:
        running: list[Contestant] = []
        try:
            for row in ROWS:
                running.append(started(arguments, Path(folder) / str(len(running)), row))
            rounds = [[one.round() for one in running] for _ in range(arguments.rounds)]
        finally:
            for one in running:
                one.end()
    best = [min(found, key=lambda one: one["seconds"]) for found in zip(*rounds, strict=True)]
    rows = {row.name: found for row, found in zip(ROWS, best, strict=True)}
    return {
        "model": arguments.name,
        "batch": arguments.batch,
        "rows": rows,
        "times_ddp": rows[DDP]["seconds"] / best[0]["seconds"],
        **checked([one.ready for one in running], best),
    }


def checked(ready: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, Any]:
    """
    The scaling model compared with real ranks: the fastest step, and the prediction from the
    fastest kernels.

    With more ranks than cores, each rank has a share of the time.
    """
    from popgraph.measure.scale import Network, Span, Step, cores_here

    measured = ready[0]["step"]
    spans = tuple(Span(**one) for one in measured["spans"])
    step = Step(measured["alone"], spans, measured["rest"])
    alone = ready[0]["alone"]
    rows = [model_row(1, step.alone, alone)]
    for row, one, times in zip(ROWS, ready, found, strict=True):
        if "network" in one:
            shared = step.slowed(max(1.0, row.ranks / cores_here()))
            rows.append(
                model_row(row.ranks, shared.seconds(Network(**one["network"]), row.ranks), times)
            )
    network = Network(**ready[0]["network"])
    messages = sum(network.all_reduce(size, ROWS[0].ranks) for size in step.messages)
    waited = max(0.0, found[0]["seconds"] - alone["seconds"])
    return {
        "messages": messages,
        "hidden": max(0.0, 1 - waited / messages),
        "scaling_model": rows,
    }


def model_row(ranks: int, predicted: float, times: dict[str, float]) -> dict[str, float]:
    measured = times["best_seconds"]
    return {
        "ranks": ranks,
        "predicted": predicted,
        "measured": measured,
        "ratio": measured / predicted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name", nargs="?", type=known, help="one of training.py; unasked those published"
    )
    parser.add_argument("--batch", type=int, default=0, help="samples of all ranks")
    parser.add_argument("--seconds", type=float, default=2, help="seconds of a round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--scale", type=Path, metavar="FILE.svg", help="predict many ranks instead, as a chart"
    )
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        (own_steps if arguments.worker == "popgraph" else their_steps)(arguments)
    elif arguments.scale:
        if not arguments.name:
            parser.error("--scale needs the name of a network")
        batch = arguments.batch or NETWORKS.get(arguments.name, 8)
        print(scaled(arguments.name, batch, arguments.scale, arguments.rounds))
    else:
        for name in [arguments.name] if arguments.name else NETWORKS:
            batch = arguments.batch or NETWORKS.get(name, 8)
            told = argparse.Namespace(**{**vars(arguments), "name": name, "batch": batch})
            print(json.dumps(measure(told), indent=1), flush=True)


if __name__ == "__main__":
    main()
