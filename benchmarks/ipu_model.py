"""
Compares the model of IPUs with published figures, for docs/ipu-model.md.

    python benchmarks/ipu_model.py              all tables, as Markdown
    python benchmarks/ipu_model.py products     one table of three: products, inference, training

Nothing is measured: the model's results are the same on every machine.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator

from popgraph import zoo
from popgraph.builder.pgraph import parse
from popgraph.compiler.sizes import specialise
from popgraph.ipu.machine import MK1, MK2, Ipu
from popgraph.ipu.model import IpuModel
from popgraph.ipu.report import rate
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.tables import markdown_table
from popgraph.training.task import task_of

PRODUCT = "opset 21\ngraph product(a: f32[N, N], b: f32[N, N]) -> (y) {\n    y = a @ b\n}\n"
PUBLISHED_SHARES = {("ipu1", "f32"): 0.607, ("ipu1", "f16"): 0.473}
"""
Published fractions of peak for large matmuls: 18.9 of 31.1 Tflop/s and 58.9 of 124.5, Jia et al.
2019.

The peaks are confirmed by other sources, 18.9 and 58.9 are not verified.
"""

PUBLISHED_BATCHES = {("ipu2", "inference"): 90, ("ipu2", "training"): 7}
"""
Published batch sizes of ResNet-50 in half precision on one IPU, from the configurations of
github.com/graphcore/examples (`applications/pytorch/cnns`). The one for training keeps activations,
like the model; with recomputation it is 18. For ipu1 none is published: training there uses four
IPUs with four images each.
"""


def model_of(text: str, ipu: Ipu, sizes: dict[str, int], *, train: bool) -> IpuModel:
    """The cost model of a program given as text."""
    document = parse(text)
    module, weights, training = document.module, document.weights, None
    if train:
        task = task_of(document)
        assert task is not None
        module, weights, training = task.module, task.weights, task.training
    compilation = Compilation(weights)
    specialise(module, compilation, sizes)
    return IpuModel.of(module, compilation, Options(training=training, measured=()), ipu)


def of_type(text: str, kind: str) -> str:
    return re.sub(r"\bf32\b", kind, text)


def products() -> Iterator[tuple[str, ...]]:
    for ipu in (MK1, MK2):
        for kind in ("f32", "f16"):
            for size in (1024, 2048, 3072, 3584):
                model = model_of(of_type(PRODUCT, kind), ipu, {"N": size}, train=False)
                share = rate(model) / ipu.peak_flops[kind]
                split = model.split()
                published = PUBLISHED_SHARES.get((ipu.name, kind))
                yield (
                    ipu.name,
                    kind,
                    str(size),
                    f"{rate(model) / 1e12:.1f}",
                    f"{share:.0%}",
                    f"{published:.0%}" if published else "",
                    f"{share / published:.2f}" if published else "",
                    f"{split['compute'] / model.cycles:.0%}",
                    f"{split['exchange'] / model.cycles:.0%}",
                    f"{model.memory.by_tile.max() / ipu.tile_bytes:.0%}",
                )


def largest(fits: Callable[[int], bool]) -> int:
    """The largest batch that fits, by bisection; 0 if none does."""
    good, bad = 0, 1
    while fits(bad):
        good, bad = bad, 2 * bad
    while bad - good > max(1, good // 16):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def batches(kind: str) -> Iterator[tuple[str, ...]]:
    train = kind == "training"
    text = of_type(zoo.resnet50(), "f16")
    for ipu in (MK1, MK2):
        models: dict[int, IpuModel] = {}

        def fits(batch: int, ipu: Ipu = ipu, models: dict[int, IpuModel] = models) -> bool:
            sizes = {"N": batch, "H": 224, "W": 224}
            models[batch] = model_of(text, ipu, sizes, train=train)
            return not models[batch].memory.overflowing

        found = largest(fits)
        published = PUBLISHED_BATCHES.get((ipu.name, kind))
        shown = models[max(1, found)]
        split, always = shown.split(), shown.memory.persistent.max() / ipu.tile_bytes
        yield (
            ipu.name,
            str(found),
            str(published or ""),
            f"{found / published:.2f}" if published else "",
            f"{found / shown.seconds:.0f}" if found else "",
            f"{split['compute'] / shown.cycles:.0%}",
            f"{split['exchange'] / shown.cycles:.0%}",
            f"{always:.0%}",
        )


PRODUCTS = (
    *("IPU", "type", "size", "Tflop/s", "of peak", "published", "ours / published"),
    *("compute", "exchange", "fullest tile"),
)
BATCHES = (
    *("IPU", "largest batch", "published", "ours / published", "images/s"),
    *("compute", "exchange", "always live"),
)
TABLES: dict[str, Callable[[], str]] = {
    "products": lambda: markdown_table(PRODUCTS, list(products()), "  " + "r" * 8),
    "inference": lambda: markdown_table(BATCHES, list(batches("inference")), " " + "r" * 7),
    "training": lambda: markdown_table(BATCHES, list(batches("training")), " " + "r" * 7),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], default=list(TABLES))
    for name in parser.parse_args().tables or TABLES:
        print(f"## {name}\n\n{TABLES[name]()}\n")


if __name__ == "__main__":
    main()
