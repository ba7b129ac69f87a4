"""
Benchmarks all models beside their peers, one process each, for docs/performance.md.

    python benchmarks                          all of it, as Markdown
    python benchmarks inference resnet50 vgg19 --threads 1 2
    python benchmarks training --write         and into the page
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models import CNNS, FROM_TORCH, TRAINED
from packaged import PACKAGED, missing

from popgraph.support.tables import markdown_row, markdown_table

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/performance.md"
STEPS = (
    *("mlp", "lenet", "resnet18", "alexnet", "transformer"),
    *(name for name in FROM_TORCH if name.startswith(("lstm", "gru"))),
)
PEERS = ("onnxruntime", "openvino", "torch")
KINDS = {"inference": (*CNNS, *FROM_TORCH, *TRAINED), "training": STEPS}
"""The script of that name measures one of these."""

INFERENCE = (
    *("model", "ours ms", "onnxruntime ms", "OpenVINO ms", "best / ours", "GFLOP/s", "of peak"),
    *("cold s", "warm s", "MB", "onnxruntime's MB"),
    *("arena / bound", "error", "onnxruntime's error"),
)
TRAINING = (
    *("network", "ours ms", "eager ms", "torch.compile ms", "best / ours"),
    *("first step s", "torch.compile's s", "losses differ by"),
)


def measured(kind: str, name: str, options: Sequence[str]) -> dict[str, Any]:
    """What one script says of one model; why not, if it fails or the model is not here."""
    if name in PACKAGED and (why := missing(name)):
        return {"model": name, "skipped": why}
    command = [sys.executable, str(HERE / f"{kind}.py"), name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    except (IndexError, ValueError):
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        why = next((line for line in reversed(lines) if "Error" in line), (lines or ["?"])[-1])
        return {"model": name, "failed": why}


def times(found: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Ours, each of the others, and how much longer the best of them takes."""
    rows = {row["name"]: row for row in found["rows"]}
    took = {name: row["best_ms"] for name, row in rows.items() if row["best_ms"]}
    ours = took["popgraph"]
    others = [took[name] for name in names if name in took]
    ratio = f"**{min(others) / ours:.2f}**" if others else ""
    cells = [milliseconds(took[name]) if name in took else "refused" for name in names]
    return [milliseconds(ours), *cells, ratio]


def milliseconds(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def inference_row(found: dict[str, Any]) -> list[str]:
    rows = {row["name"]: row for row in found["rows"]}
    ours, theirs = rows["popgraph"], rows["onnxruntime"]
    bound, took = found["largest_live_set"], found["memory_mb"]
    return [
        *times(found, ("onnxruntime", "openvino")),
        f"{ours['gflops']:.0f}",
        f"{ours['share_of_peak']:.0%}",
        f"{found['cold_s']:.1f}",
        f"{found['warm_s']:.2f}",
        *(f"{took[name]:.0f}" if took else "-" for name in ("popgraph", "onnxruntime")),
        f"{found['arena'] / bound:.2f}" if bound else "-",
        *("" if row["error"] is None else f"{row['error']:.1e}" for row in (ours, theirs)),
    ]


def training_row(found: dict[str, Any]) -> list[str]:
    return [
        *times(found, ("eager", "torch.compile")),
        f"{found['first_step_s']:.1f}",
        f"{found['theirs_first_step_s']:.1f}",
        f"{found['losses_differ_by']:.1e}",
    ]


def row(kind: str, found: dict[str, Any]) -> str:
    if "skipped" in found:
        return markdown_row([found["model"], f"skipped: {found['skipped']}"])
    if "failed" in found:
        return markdown_row([found["model"], f"not compiled: {found['failed']}"])
    cells = inference_row(found) if kind == "inference" else training_row(found)
    return markdown_row([found["model"], *cells])


def tables(arguments: argparse.Namespace) -> Iterator[str]:
    """The lines of all tables, each as soon as it is measured."""
    for kind in [arguments.kind] if arguments.kind else KINDS:
        for threads in arguments.threads:
            heading = INFERENCE if kind == "inference" else TRAINING
            unit = "thread" if threads == 1 else "threads"
            yield from (f"### {kind.capitalize()}, {threads} {unit}", "")
            yield markdown_table(heading, [], " " + "r" * (len(heading) - 1))
            options = ["--threads", str(threads), "--seconds", str(arguments.seconds)]
            options += ["--rounds", str(arguments.rounds)]
            if kind == "inference" and arguments.accuracy and threads == 1:
                options.append("--accuracy")
            for name in arguments.names or KINDS[kind]:
                yield row(kind, measured(kind, name, options))
            yield ""


def machine() -> str:
    """What the numbers depend on."""
    from popgraph.backends.c.build.target import host_target
    from popgraph.backends.c.build.toolchain import candidates

    compiler = next(iter(candidates()))
    said = compiler.run(["--version"]).output.splitlines()
    peers = ", ".join(f"{name} {version(name)}" for name in PEERS)
    return (
        f"{processor()}, {os.cpu_count()} cores, {host_target().name}; {said[0] if said else '?'}; "
        f"Python {platform.python_version()}; {peers}."
    )


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    facts = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    family = f"family {facts.get('cpu family')}, model {facts.get('model')}"
    return f"{facts.get('model name', platform.processor())} ({family})"


def write(kind: str, text: str) -> None:
    """Puts tables between the markers of this kind of machine, new ones where it has none yet."""
    from popgraph.backends.c.build.target import host_target

    place = f"{kind} with {host_target().name}"
    begin, end = f"<!-- {place} -->\n", f"<!-- end of {place} -->\n"
    page, heading = PAGE.read_text(), f"## {kind.capitalize()}\n"
    if begin not in page:
        page = page.replace(heading, f"{heading}\n{begin}{end}")
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    assert found and closed, f"{PAGE} has no place for {place}"
    PAGE.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", nargs="?", choices=KINDS, help="all of them if not given")
    parser.add_argument("names", nargs="*", help="all of that kind if not given")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=3, help="at least, for each model")
    parser.add_argument("--rounds", type=int, default=15, help="at least, for each model")
    parser.add_argument("--accuracy", action="store_true", help="errors against double precision")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    arguments = parser.parse_args()
    for kind in [arguments.kind] if arguments.kind else list(KINDS):
        chosen = argparse.Namespace(**{**vars(arguments), "kind": kind})
        lines = [machine(), ""]
        for line in tables(chosen):
            print(line, flush=True)
            lines.append(line)
        if arguments.write:
            write(kind, "\n".join(lines))


if __name__ == "__main__":
    main()
