"""
Benchmarks all models and their peers, one process each, for the pages of performance in docs/.

    python benchmarks                          all tables, as Markdown
    python benchmarks inference resnet50 vgg19 --threads 1 2
    python benchmarks training --write         and into the page
    python benchmarks quantized                networks in bytes
    python benchmarks halves                   networks in bf16 and f16
    python benchmarks architectures            networks of torchvision, timm and transformers
    python benchmarks decode                   language models, token by token
    python benchmarks ops --only '^Resize|Conv'  single operators, beside onnxruntime
    python benchmarks export                   exported C, beside emx-onnx-cgen's
    python benchmarks arena --threads 1 2      SmolLM2-135M in every runtime that is installed
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import architectures
import arena
import operator_cases
import packaged
from halved_models import HALVED
from language_models import LANGUAGES
from models import CNNS, FROM_TORCH, TRAINED
from quantized_models import QUANTIZED
from spent import Spent

from popgraph.support.tables import markdown_row, markdown_table

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/performance.md"
"""The page of machines with AVX-512; `page_of` finds the others."""
STEPS = (
    *("mlp", "lenet", "resnet18", "alexnet", "transformer"),
    *(name for name in FROM_TORCH if name.startswith(("lstm", "gru"))),
)
PEERS = ("onnxruntime", "openvino", "torch")
OPERATORS = tuple(dict.fromkeys(case.title for case in operator_cases.CASES))
EXPORTED = (
    *("mlp_4_16_3", "mlp_784_128_10", "squeezenet", "shufflenet", "efficientnet_lite0"),
    *("encoder_4x256", "lstm_1x64x128", "gru_1x64x128"),
)
KINDS = {
    "inference": (*CNNS, *FROM_TORCH, *TRAINED),
    "quantized": QUANTIZED,
    "halves": HALVED,
    "architectures": tuple(architectures.ARCHITECTURES),
    "training": STEPS,
    "decode": tuple(LANGUAGES),
    "ops": OPERATORS,
    "export": EXPORTED,
    "arena": (arena.NAME,),
}
"""{kind of benchmark: its models}."""
SECTIONS = {"halves": "Half precision"}
"""{kind: title of its section}, where they differ."""
SCRIPTS = dict.fromkeys(("quantized", "halves", "architectures"), "inference")
"""{kind: the script that measures its models}, where they differ."""

INFERENCE = (
    *("model", "ours ms", "onnxruntime ms", "OpenVINO ms", "best / ours", "GFLOP/s", "of peak"),
    *("cold s", "own CPU s", "C compiler CPU s", "warm s", "MB", "onnxruntime's MB"),
    *("arena / bound", "error", "onnxruntime's error"),
)
TRAINING = (
    *("network", "ours ms", "eager ms", "torch.compile ms", "best / ours"),
    *("first step s", "own CPU s", "C compiler CPU s", "torch.compile's s", "losses differ by"),
)
OPS = ("operator", "case", "ours ms", "onnxruntime ms", "theirs / ours", "reason")
EXPORT = (
    *("model", "ours ms", "emx-onnx-cgen ms", "theirs / ours", "code, kB", "theirs, kB"),
    *("our RAM, kB", "results differ by"),
)
DECODE = (
    *("model", "new tokens", "ours ms a token", "onnxruntime ms a token", "theirs / ours"),
    *("programs", "first token s", "own CPU s", "C compiler CPU s", "logits differ by"),
)
HEADINGS = {
    **dict.fromkeys(("inference", *SCRIPTS), INFERENCE),
    "training": TRAINING,
    "decode": DECODE,
    "export": EXPORT,
    "arena": arena.COLUMNS,
}
SLOW = 0.8
"""The ratio to onnxruntime below which a row states a reason."""


def measured(kind: str, name: str, options: Sequence[str]) -> dict[str, Any]:
    """The result of a script for one model; the reason if it fails or the model is absent."""
    for found, missing in (
        (packaged.PACKAGED, packaged.missing),
        (architectures.ARCHITECTURES, architectures.missing),
    ):
        if name in found and (why := missing(name)):
            return {"model": name, "skipped": why}
    command = [sys.executable, str(HERE / f"{SCRIPTS.get(kind, kind)}.py"), name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return said
    except (IndexError, ValueError):
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        why = next((line for line in reversed(lines) if "Error" in line), (lines or ["?"])[-1])
        return {"model": name, "failed": why}


def times(found: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Our time, those of the others, and the ratio of the best of them to ours."""
    rows = {row["name"]: row for row in found["rows"]}
    took = {name: row["best_ms"] for name, row in rows.items() if row["best_ms"]}
    ours = took["popgraph"]
    others = [took[name] for name in names if name in took]
    ratio = f"**{min(others) / ours:.2f}**" if others else "-"
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
        *cold_cells(found["cold"]),
        f"{found['warm']['wall']:.2f}",
        *(f"{took[name]:.0f}" if name in took else "-" for name in ("popgraph", "onnxruntime")),
        f"{found['arena'] / bound:.2f}" if bound else "-",
        *("-" if row["error"] is None else f"{row['error']:.1e}" for row in (ours, theirs)),
    ]


def cold_cells(cold: Spent) -> list[str]:
    """Seconds by the wall clock, of our process, and of the C compiler."""
    return [f"{cold[one]:.1f}" for one in ("wall", "own_cpu", "compiler_cpu")]


def training_row(found: dict[str, Any]) -> list[str]:
    return [
        *times(found, ("eager", "torch.compile")),
        *cold_cells(found["cold"]),
        f"{found['theirs_first_step_s']:.1f}",
        f"{found['losses_differ_by']:.1e}",
    ]


def decode_row(found: dict[str, Any]) -> list[str]:
    ours, theirs = found["ours_ms"], found["theirs_ms"]
    return [
        str(LANGUAGES[found["model"]].tokens),
        *(milliseconds(took) for took in (ours, theirs)),
        f"**{theirs / ours:.2f}**",
        str(found["programs"]),
        *cold_cells(found["cold"]),
        f"{found['differ_by']:.1e}",
    ]


def export_row(found: dict[str, Any]) -> list[str]:
    ours, theirs = found["ours_ms"], found["theirs_ms"]
    return [
        *(milliseconds(took) for took in (ours, theirs)),
        f"**{theirs / ours:.1f}**",
        *(f"{size / 1000:.1f}" for size in (*found["code"], found["ram"])),
        f"{found['differ_by']:.1e}",
    ]


ROWS = {
    **dict.fromkeys(("inference", *SCRIPTS), inference_row),
    "training": training_row,
    "decode": decode_row,
    "export": export_row,
}


def row(kind: str, found: dict[str, Any]) -> str:
    if "skipped" in found:
        return markdown_row([found["model"], f"skipped: {found['skipped']}"])
    if "failed" in found:
        return markdown_row([found["model"], f"not compiled: {found['failed']}"])
    return markdown_row([found["model"], *ROWS[kind](found)])


def arena_rows(found: dict[str, Any]) -> Iterator[str]:
    """A row per runtime."""
    if "failed" in found:
        yield row("arena", found)
        return
    for one in found["rows"]:
        why = [f"skipped: {one['skipped']}"] if one["skipped"] else arena.cells(one)
        yield markdown_row([one["name"], *why])


def ops_rows(found: dict[str, Any]) -> Iterator[str]:
    """A row per case of an operator, or one row if its process failed."""
    if "failed" in found:
        yield markdown_row([found["model"], "", "", "", "", f"failed: {found['failed']}"])
    for case in found.get("cases", []):
        yield markdown_row([case["operator"], case["case"], *ops_cells(case)])


def ops_cells(case: dict[str, Any]) -> list[str]:
    for key, who in (("failed", "not compiled"), ("refused", "onnxruntime refuses")):
        if key in case:
            return ["", "", "", f"{who}: {case[key]}"]
    ratio = case["theirs_ms"] / case["ours_ms"]
    reason = (case["reason"] or "**none**") if ratio < SLOW else ""
    if case["differ_by"] > TOLERANCE:
        reason = f"{reason} the results differ by {case['differ_by']:.1e}".strip()
    return [
        *(milliseconds(case[name]) for name in ("ours_ms", "theirs_ms")),
        f"**{ratio:.2f}**",
        reason,
    ]


TOLERANCE = 1e-3
"""Relative difference of results above which a row reports it."""


def ops_summary(all_found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The mean ratio, the number of slow cases, and the operators without a case."""
    timed = [case for found in all_found for case in found.get("cases", []) if "ours_ms" in case]
    ratios = [case["theirs_ms"] / case["ours_ms"] for case in timed]
    if ratios:
        slow = sum(ratio < SLOW for ratio in ratios)
        mean = statistics.geometric_mean(ratios)
        yield f"Geometric mean of {len(ratios)} cases: {mean:.2f}; below {SLOW}: {slow}."
    yield f"Operators without a case: {', '.join(operator_cases.missing()) or 'none'}."
    yield f"Operators that onnxruntime does not have: {', '.join(sorted(operator_cases.ABSENT))}."


def ops_table(arguments: argparse.Namespace) -> Iterator[str]:
    """The table of single operators, each in its own process."""
    yield from ("### Operators, 1 thread", "", markdown_table(OPS, [], "  rrr "))
    options = ["--seconds", str(arguments.seconds), "--rounds", str(arguments.rounds)]
    names = [name for name in arguments.names or OPERATORS if re.search(arguments.only, name)]
    all_found = []
    for name in names:
        all_found.append(measured("ops", name, options))
        yield from ops_rows(all_found[-1])
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(all_found, indent=1) + "\n")
    yield ""
    yield from ops_summary(all_found)


def tables(arguments: argparse.Namespace) -> Iterator[str]:
    """The lines of all tables, as soon as each is measured."""
    for kind in [arguments.kind] if arguments.kind else KINDS:
        if kind == "ops":
            yield from ops_table(arguments)
            continue
        for threads in arguments.threads:
            heading = HEADINGS[kind]
            unit = "thread" if threads == 1 else "threads"
            yield from (f"### {kind.capitalize()}, {threads} {unit}", "")
            yield markdown_table(heading, [], " " + "r" * (len(heading) - 1))
            options = ["--threads", str(threads), "--seconds", str(arguments.seconds)]
            options += ["--rounds", str(arguments.rounds)]
            if kind == "inference" and arguments.accuracy and threads == 1:
                options.append("--accuracy")
            for name in arguments.names or KINDS[kind]:
                found = measured(kind, name, options)
                yield from arena_rows(found) if kind == "arena" else [row(kind, found)]
            yield ""
        if kind == "arena":  # Versions and settings are those of every number of threads.
            yield from arena.notes(found)


def machine() -> str:
    """The machine, compiler and packages of the measurement."""
    from popgraph.backends.c.build.target import host_target
    from popgraph.backends.c.build.toolchain import candidates

    compiler = next(iter(candidates()))
    said = compiler.run(["--version"]).output.splitlines()
    peers = ", ".join(f"{name} {version(name)}" for name in PEERS if find_spec(name))
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


def page_of(kind: str, target: str) -> Path:
    """The page with the tables of a kind: operators and AVX2 have pages of their own."""
    if kind == "ops":
        return PAGE.with_name("performance-operators.md")
    return PAGE if target == "avx512" else PAGE.with_name("performance-avx2.md")


def without_empty_columns(text: str) -> str:
    """The text, its tables without columns that hold only `-`."""
    return re.sub(r"(?:^\|.*\n)+", lambda found: _filled(found[0]), text, flags=re.MULTILINE)


def _filled(table: str) -> str:
    heading, rule, *rows = (_cells(line) for line in table.splitlines())
    whole = [cells for cells in rows if len(cells) == len(heading)]
    kept = [
        column
        for column in range(len(heading))
        if not whole or any(cells[column] != "-" for cells in whole)
    ]
    short = [
        [cells[column] for column in kept] if len(cells) == len(heading) else cells
        for cells in (heading, rule, *rows)
    ]
    return "".join(f"{markdown_row(cells)}\n" for cells in short)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def write(kind: str, text: str) -> None:
    """
    Writes the tables of a kind between its markers for this target, which are added if absent.
    """
    from popgraph.backends.c.build.target import host_target

    target = host_target().name
    place, path = f"{kind} with {target}", page_of(kind, target)
    begin, end = f"<!-- {place} -->\n", f"<!-- end of {place} -->\n"
    page, title = path.read_text(), f"## {SECTIONS.get(kind, kind.capitalize())}\n"
    if title not in page:
        page = f"{page.rstrip()}\n\n{title}"
    if begin not in page:
        page = page.replace(title, f"{title}\n{begin}{end}")
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    assert found and closed, f"{path} has no position for {place}"
    tables = without_empty_columns(f"{text.strip()}\n").strip()
    path.write_text(f"{before}{begin}\n{tables}\n\n{end}{after}")


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
    parser.add_argument("--only", default="", metavar="REGEX", help="operators of such names")
    parser.add_argument("--json", metavar="FILE", help="all results of operators")
    parser.add_argument("--write", action="store_true", help="into the pages of docs/")
    arguments = parser.parse_args()
    if arguments.write and (arguments.names or arguments.only):
        parser.error("--write replaces a whole table: leave out names and --only")
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
