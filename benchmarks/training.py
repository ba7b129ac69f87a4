"""Benchmarks a training step of one network beside PyTorch, as JSON."""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from networks import Recurrent, recurrent
from spent import spent
from torch import Tensor, nn
from torch.nn import functional
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.builder.pgraph import add_loss
from popgraph.compiler import build, load
from popgraph.dialects.onnx.types import tensor_type
from popgraph.measure.profile import report
from popgraph.measure.profile_report import text
from popgraph.measure.timing import Contestant, pin, race
from popgraph.passes.base import Compilation
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import BF16, Options, Training
from popgraph.support import dtypes
from popgraph.support.arrays import Array

LEARNING_RATE = 0.01


class AlexNet(nn.Module):
    """Five convolutions and three large matmuls."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2)),
        )
        self.classes = nn.Sequential(
            *(nn.Linear(256 * 36, 4096), nn.ReLU()),
            *(nn.Linear(4096, 4096), nn.ReLU()),
            nn.Linear(4096, 1000),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.classes(self.features(x).flatten(1))
        return found


class Residual(nn.Module):
    """relu(x + two normalized convolutions of x)."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, filters, 3, stride, 1, bias=False),
            nn.BatchNorm2d(filters),
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3, 1, 1, bias=False),
            nn.BatchNorm2d(filters),
        )
        self.past: nn.Module = nn.Identity()
        if stride != 1 or channels != filters:
            narrow = nn.Conv2d(channels, filters, 1, stride, bias=False)
            self.past = nn.Sequential(narrow, nn.BatchNorm2d(filters))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.past(x))


class ResNet18(nn.Module):
    """Eight residual blocks of two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        channels = 64
        for filters, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [Residual(channels, filters, stride), Residual(filters, filters, 1)]
            channels = filters
        self.blocks = nn.Sequential(*blocks)
        self.classes = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.classes(self.blocks(self.stem(x)).mean((2, 3)))
        return found


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.projections = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.projections(x).split(width, 2)
        query, key, value = (
            part.reshape(batch, length, self.heads, self.size).transpose(1, 2) for part in parts
        )
        scores = (query @ key.transpose(2, 3)) * self.size**-0.5
        mixed = functional.softmax(scores, -1) @ value
        found: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return found


class EncoderLayer(nn.Module):
    """Attention and an MLP, each with a residual and normalization."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.products = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x + self.attention(x))
        found: Tensor = self.second(x + self.products(x))
        return found


class Transformer(nn.Module):
    """Four encoder layers of width 256."""

    def __init__(self) -> None:
        super().__init__()
        layers = [EncoderLayer(256, 4, 1024) for _ in range(4)]
        self.layers = nn.Sequential(nn.Linear(64, 256), *layers)
        self.classes = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.classes(self.layers(x).mean(1))
        return found


class LastStep(nn.Module):
    """Classifies by the last step of a recurrent layer."""

    def __init__(self, kind: type[nn.RNNBase], units: int) -> None:
        super().__init__()
        self.layer, self.classes = Recurrent(kind, units), nn.Linear(units, 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.classes(self.layer(x)[:, -1])
        return found


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, 10),
    )


@dataclass(frozen=True)
class Case:
    """A network, its input shape, and its number of classes."""

    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int


CASES = {
    "mlp": Case(mlp, (32, 784), 10),
    "lenet": Case(lenet, (32, 1, 28, 28), 10),
    "transformer": Case(Transformer, (8, 64, 64), 10),
    "resnet18": Case(ResNet18, (4, 3, 224, 224), 1000),
    "alexnet": Case(AlexNet, (4, 3, 224, 224), 1000),
    **{name: Case(*made, 10) for name, made in recurrent(LastStep).items()},
}


class Trained:
    """A network and a batch, with the training steps of both frameworks."""

    def __init__(self, name: str, case: Case | None = None) -> None:
        torch.manual_seed(0)
        self.case = case or CASES[name]
        self.network = self.case.network()
        self.x = torch.randn(self.case.shape)
        self.labels = torch.randint(0, self.case.classes, self.case.shape[:1])

    def exported(self) -> onnx.ModelProto:
        """The network as ONNX, with its input `x` and its output `y`."""
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                self.network,
                (self.x,),
                file,
                dynamo=False,
                training=torch.onnx.TrainingMode.TRAINING,
                do_constant_folding=False,
                input_names=["x"],
                output_names=["y"],
            )
        return onnx.load_from_string(file.getvalue())

    @property
    def arrays(self) -> dict[str, Array]:
        return {"x": self.x.numpy(), "labels": self.labels.numpy().astype(np.int32)}

    def task(self, precision: str = "") -> tuple[ModuleOp, Compilation, Options]:
        """The exported network with its loss, its weights, and the training options."""
        module, compilation = load(self.exported())
        labels = tensor_type(dtypes.from_numpy(np.dtype(np.int32)), self.case.shape[:1])
        loss = "nll(Softmax(y), labels)"
        module, name = add_loss(module, compilation.weights, loss, {"labels": labels})
        training = Training(name, SGD(learning_rate=Scalar(LEARNING_RATE)))
        return module, compilation, Options(training=training, precision=precision)

    def ours(self, precision: str = "", threads: int = 1) -> Executable:
        """The compiled step."""
        module, compilation, options = self.task(precision)
        return build(module, compilation, options, threads=threads)

    def theirs(self, compiled: bool, *, lower: bool = False) -> Callable[[], float]:
        """A step of PyTorch, eager or compiled; `lower` multiplies in bf16 by its autocast."""
        optimizer = torch.optim.SGD(self.network.parameters(), lr=LEARNING_RATE)

        def loss_of(x: Tensor, labels: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=lower):
                return functional.cross_entropy(self.network(x), labels)

        loss_function = torch.compile(loss_of) if compiled else loss_of

        def step() -> float:
            optimizer.zero_grad(set_to_none=True)
            loss = loss_function(self.x, self.labels)
            loss.backward()
            optimizer.step()
            return float(loss.item())

        return step


def losses(trained: Trained, executable: Executable, steps: int) -> float:
    """The largest difference of the losses in the first steps, relative to the first loss."""
    step = trained.theirs(False)
    pairs = []
    for _ in range(steps):
        (found,) = [
            float(value) for value in executable.run(trained.arrays).values() if not value.shape
        ]
        pairs.append((found, step()))
    return max(abs(ours - theirs) for ours, theirs in pairs) / abs(pairs[0][1])


def compiled(trained: Trained) -> tuple[Callable[[], float] | None, float, str]:
    """A step of torch.compile, the seconds of its first run, and the reason if it fails."""
    step = trained.theirs(True)
    try:
        return step, spent(step)["wall"], ""
    except Exception as error:  # Its C++ compiler needs headers that may be missing.
        return None, 0.0, f"torch.compile does not work here: {type(error).__name__}"


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All measurements of a network."""
    trained = Trained(name)
    made: list[Executable] = []
    cold = spent(lambda: made.append(trained.ours(threads=arguments.threads)))
    (executable,) = made
    arrays = trained.arrays
    difference = losses(trained, executable, 3)
    contestants = [
        Contestant("popgraph", lambda: executable.run(arrays)),
        Contestant("eager", trained.theirs(False)),
    ]
    if arguments.bf16:
        halved = trained.ours(BF16, arguments.threads)
        contestants.append(Contestant("popgraph bf16", lambda: halved.run(arrays)))
        contestants.append(Contestant("eager bf16", trained.theirs(False, lower=True)))
    theirs_cold, refusal = 0.0, ""
    if not arguments.eager:
        step, theirs_cold, refusal = compiled(trained)
        if step is not None:
            contestants.append(Contestant("torch.compile", step))
    race(
        contestants,
        threads=arguments.threads,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
    )
    return {
        "model": name,
        "threads": arguments.threads,
        "rows": [
            {"name": each.name, "best_ms": each.best * 1e3, "median_ms": each.median * 1e3}
            for each in contestants
        ],
        "refusal": refusal,
        "cold": cold,
        "theirs_first_step_s": theirs_cold,
        "losses_differ_by": difference,
    }


def profile(arguments: argparse.Namespace) -> str:
    """The time of our step by kernel."""
    module, compilation, options = Trained(arguments.name).task(BF16 if arguments.bf16 else "")
    found = report(
        *(arguments.name, module, compilation, arguments.threads, arguments.rounds),
        options=options,
    )
    return text(found, 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=CASES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="show our kernels instead")
    parser.add_argument("--bf16", action="store_true", help="also a step in mixed precision")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POPGRAPH_CACHE_DIR"] = f"{folder}/popgraph"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/torch"
        pin(arguments.threads)
        torch.set_num_threads(arguments.threads)
        if arguments.profile:
            print(profile(arguments))
        else:
            print(json.dumps(measure(arguments.name, arguments)))


if __name__ == "__main__":
    main()
