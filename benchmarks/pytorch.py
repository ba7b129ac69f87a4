"""Benchmarks training steps of PyTorch, of `popgraph.torch` and of our trainer, as JSON."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from chosen import one_of
from torch import Tensor, nn
from torch.nn import functional
from training import CASES, LEARNING_RATE, Trained, compiled

import popgraph.torch
from popgraph.measure.timing import Contestant, pin, race


class WithLoss(nn.Module):
    """A network and its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.network(x), labels)


def ours(trained: Trained, *, loss_inside: bool) -> Callable[[], float]:
    """A step with `popgraph.torch.compile` of the network, or of the network and its loss."""
    with_loss = WithLoss(trained.network)
    if loss_inside:
        loss_of = popgraph.torch.compile(with_loss)
    else:
        with_loss.network = popgraph.torch.compile(trained.network)
        loss_of = with_loss
    optimizer = torch.optim.SGD(trained.network.parameters(), lr=LEARNING_RATE)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(trained.x, trained.labels)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times of a step, and the shares of the trainer's gain over eager PyTorch."""
    eager, outside, inside = (Trained(name) for _ in range(3))
    steps = {
        "eager": eager.theirs(False),
        "popgraph.torch": ours(outside, loss_inside=False),
        "popgraph.torch, loss inside": ours(inside, loss_inside=True),
    }
    losses = {one: [step() for _ in range(3)] for one, step in steps.items()}
    native = Trained(name)
    executable, arrays = native.ours(threads=arguments.threads), native.arrays
    contestants = [Contestant(one, step) for one, step in steps.items()]
    contestants.append(Contestant("trainer", lambda: executable.run(arrays)))
    refusal = ""
    if not arguments.without_inductor:
        step, _, refusal = compiled(Trained(name))
        if step is not None:
            contestants.append(Contestant("inductor", step))
    race(
        contestants,
        threads=arguments.threads,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
    )
    best = {each.name: each.best * 1e3 for each in contestants}
    gain = best["eager"] / best["trainer"]
    return {
        "model": name,
        "threads": arguments.threads,
        "best_ms": best,
        "shares_of_the_trainer_gain": {
            one: best["eager"] / best[one] / gain for one in best if one not in ("eager", "trainer")
        },
        "losses": losses,
        "refusal": refusal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", type=one_of("network", CASES), help=f"of {', '.join(CASES)}"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--without-inductor", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POPGRAPH_CACHE_DIR"] = f"{folder}/popgraph"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/torch"
        pin(arguments.threads)
        torch.set_num_threads(arguments.threads)
        for name in arguments.names or CASES:
            print(json.dumps(measure(name, arguments)), flush=True)


if __name__ == "__main__":
    main()
