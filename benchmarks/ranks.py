"""Benchmarks two ranks of one thread beside one rank of two threads and PyTorch's DDP, as JSON."""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROUNDS = 3
"""How often each contestant is started, in turn with the others."""
NETWORKS = {"resnet18": 16, "transformer": 8}
"""The networks that are published, and the samples of a batch of all ranks."""


def own_step(name: str, batch: int, threads: int, seconds: float) -> dict[str, Any]:
    """Our step, on whatever ranks run this."""
    from training import CASES, Trained

    from popgraph.measure.scale import Trained as Step
    from popgraph.measure.scale import network_here
    from popgraph.support.ranks.world import world

    here = world()
    case = CASES[name]
    trained = Trained(name, replace(case, shape=(batch // here.size, *case.shape[1:])))
    module, compilation, options = trained.task()
    step = Step(module, compilation, options, threads)
    program = step.request(here.size).executable()
    arrays, how = trained.arrays, (seconds, here.barrier, here.broadcast)
    found: dict[str, Any] = {"seconds": timed(lambda: program.run(arrays), *how)}
    if here.size > 1:
        alone = step.request(1).executable()
        apart = timed(lambda: alone.run(arrays), *how)
        network, messages = network_here(here, 10), step.measured(3).messages
        told = sum(network.all_reduce(size, here.size) for size in messages)
        waited = max(0.0, found["seconds"] - apart)
        found |= {
            "alone": apart,
            "messages": told,
            "hidden": max(0.0, 1 - waited / told),
        }
    return found if here.is_first else {}


def their_step(name: str, batch: int, seconds: float) -> dict[str, Any]:
    """A step of DistributedDataParallel over gloo, one thread on each rank."""
    import torch
    from torch import distributed
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel
    from training import CASES, LEARNING_RATE

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    case, ranks = CASES[name], distributed.get_world_size()
    torch.manual_seed(0)
    network = DistributedDataParallel(case.network())
    x = torch.randn((batch // ranks, *case.shape[1:]))
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

    found = timed(step, seconds, distributed.barrier, agreed)
    is_first = distributed.get_rank() == 0
    distributed.destroy_process_group()
    return {"seconds": found} if is_first else {}


def timed(
    step: Callable[[], object],
    seconds: float,
    barrier: Callable[[], object],
    agreed: Callable[[int], int],
) -> float:
    """The median of steps, of which all ranks run as many; the first ones warm up."""
    for _ in range(2):
        step()
    barrier()
    start = time.perf_counter()
    step()
    count = agreed(max(3, min(200, int(seconds / max(1e-6, time.perf_counter() - start)))))
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def started(arguments: argparse.Namespace, kind: str, ranks: int, threads: int) -> dict[str, Any]:
    """What the ranks of one contestant find."""
    own = [sys.executable, __file__, arguments.name, "--worker", kind]
    own += ["--threads", str(threads), "--batch", str(arguments.batch)]
    own += ["--seconds", str(arguments.seconds)]
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    if kind == "popgraph":
        mpirun = Path(sys.executable).parent / "mpirun"
        launcher = [str(mpirun) if mpirun.exists() else "mpirun", "--bind-to", "none"]
        commands = [[*launcher, "-n", str(ranks), *own] if ranks > 1 else own]
        extra: list[dict[str, str]] = [{}]
    else:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = str(found.getsockname()[1])
        commands = [own] * ranks
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
        extra = [{**shared, "RANK": str(rank)} for rank in range(ranks)]
    running = [
        subprocess.Popen(command, env={**environment, **more}, stdout=subprocess.PIPE, text=True)
        for command, more in zip(commands, extra, strict=True)
    ]
    lines = [line for one in running for line in one.communicate()[0].splitlines()]
    if any(one.returncode for one in running):
        raise SystemExit(f"{kind} on {ranks} ranks failed")
    told = [json.loads(line) for line in lines if line.startswith("{")]
    return next(one for one in told if one)


BANDWIDTHS = {"10 Gbit/s": 10e9, "25 Gbit/s": 25e9, "100 Gbit/s": 100e9}
LATENCY, ADDITION = 5e-6, 40e9 / 8
MOST_RANKS = 1024


def scaled(name: str, batch: int, file: Path, rounds: int) -> str:
    """What the scaling model says of a network of which each rank takes a whole batch."""
    from training import CASES, Trained

    from popgraph.measure.scale import Network, efficiency_chart, predictions
    from popgraph.measure.scale import Trained as Step
    from popgraph.support.charts.svg import svg
    from popgraph.support.tables import markdown_table

    case = CASES[name]
    trained = Trained(name, replace(case, shape=(batch, *case.shape[1:])))
    step = Step(*trained.task()).measured(rounds)
    found = {
        told: predictions(step, Network(rate / 8, LATENCY, ADDITION), MOST_RANKS)
        for told, rate in BANDWIDTHS.items()
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


CONTESTANTS = {
    "two ranks of one thread": ("popgraph", 2, 1),
    "one rank of two threads": ("popgraph", 1, 2),
    "PyTorch DDP, gloo, two ranks": ("torch", 2, 1),
}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All contestants, in turn."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
    for _ in range(arguments.rounds):
        for name, how in CONTESTANTS.items():
            found[name].append(started(arguments, *how))
    best = {name: min(rows, key=lambda row: row["seconds"]) for name, rows in found.items()}
    ours, theirs = (best[name]["seconds"] for name in list(CONTESTANTS)[::2])
    return {
        "model": arguments.name,
        "batch": arguments.batch,
        "rows": best,
        "times_ddp": theirs / ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help="one of training.py; unasked those published")
    parser.add_argument("--batch", type=int, default=0, help="samples of all ranks")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--scale", type=Path, metavar="FILE.svg", help="predict many ranks instead, as a chart"
    )
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker == "popgraph":
        told = own_step(arguments.name, arguments.batch, arguments.threads, arguments.seconds)
        print(json.dumps(told), flush=True)
    elif arguments.worker:
        print(
            json.dumps(their_step(arguments.name, arguments.batch, arguments.seconds)), flush=True
        )
    elif arguments.scale:
        batch = arguments.batch or NETWORKS.get(arguments.name, 8)
        print(scaled(arguments.name, batch, arguments.scale, arguments.rounds))
    else:
        for name in [arguments.name] if arguments.name else NETWORKS:
            arguments.name = name
            arguments.batch = arguments.batch or NETWORKS.get(name, 8)
            print(json.dumps(measure(arguments)), flush=True)
            arguments.batch = 0


if __name__ == "__main__":
    main()
