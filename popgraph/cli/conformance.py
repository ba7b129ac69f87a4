"""`popgraph conformance`: runs ONNX's backend test suite, and counts the outcomes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.support.writing import write_text

if TYPE_CHECKING:
    from popgraph.conformance.cases import Case
    from popgraph.conformance.outcome import Outcome


class On(StrEnum):
    """Backends for the models."""

    C = "c"
    REFERENCE = "reference"


def command(
    backend: Annotated[
        list[On] | None,
        typer.Option(case_sensitive=False, help="Backend to test (repeatable)."),
    ] = None,
    suite: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="A wheel of onnx, or a folder of tests, instead of the installed onnx package "
            "(repeatable).",
        ),
    ] = None,
    only: Annotated[str, typer.Option(metavar="REGEX", help="Only tests whose name matches.")] = "",
    listed: Annotated[
        bool, typer.Option("--list", help="List every test that does not pass, with the reason.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all outcomes to a file.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Append each outcome to a file; tests that are in it do not run again.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of processes (default: one per processor).")
    ] = None,
    limit: Annotated[float, typer.Option(min=1, help="Timeout per test, in seconds.")] = 300.0,
) -> None:
    """
    Run ONNX's backend test suite, and count the outcomes.

    \b
    popgraph conformance
    popgraph conformance --backend reference --only '^test_reduce' --list
    popgraph conformance --backend c --backend reference --json conformance.json
    popgraph conformance --suite onnx-1.6.0-cp37-cp37m-manylinux1_x86_64.whl --suite my/tests
    popgraph conformance --suite my/tests --log my.jsonl

    Inputs are fed when a model runs, as by ONNX's runner. A test counts as refused if PopGraph
    rejects it with a message, as wrong if values differ from ONNX's, and as failed after a crash, a
    timeout or any other error. Exits with status 1 if a test is wrong or failed. On the C backend,
    passed tests are also counted by where they were computed: C, C and host, or host only, if
    Python computes every node. Tests that cannot pass anywhere are skipped, with the reason.

    Wheels of onnx up to 1.22 contain the tests of their release, in older versions of the
    operators: `pip download --no-deps --python-version 3.10 onnx==1.12.0` gets one. They are
    unpacked to a temporary folder, not installed. A folder of tests holds
    KIND/test_NAME/model.onnx, and beside it test_data_set_*/input_*.pb and output_*.pb. A test that
    is byte-identical in several suites runs once and counts for each.

    A run with --log that is interrupted continues when it is started again.
    """
    from popgraph.cli import models
    from popgraph.conformance.outcome import BROKEN
    from popgraph.conformance.report import described

    if json_file is not None:
        models.check_place(json_file, "--json")
    if log is not None:
        models.check_place(log, "--log")
    many = jobs or os.cpu_count() or 1
    with _cases(suite or [], only) as cases:
        found = {str(each): _outcomes(each, cases, many, limit, log) for each in backend or [On.C]}
    for name, outcomes in found.items():
        typer.echo(text(name, outcomes, listed, suites=bool(suite)))
    if json_file is not None:
        write_text(json_file, json.dumps(described(found), indent=1) + "\n")
    if any(each.status in BROKEN for outcomes in found.values() for each in outcomes):
        raise typer.Exit(1)


@contextmanager
def _cases(suites: list[Path], only: str) -> Iterator[list[Case]]:
    from popgraph.conformance.cases import all_cases, matching
    from popgraph.conformance.suites import opened

    if not suites:
        yield matching(only, all_cases())
        return
    with opened(suites) as cases:
        yield matching(only, cases)


def _outcomes(
    backend: On, cases: list[Case], jobs: int, limit: float, file: Path | None
) -> list[Outcome]:
    from popgraph.backend import CBackend, ReferenceBackend
    from popgraph.conformance.log import Log
    from popgraph.conformance.workers import outcomes

    log = None if file is None else Log(file, str(backend))
    known, left = (log.outcomes(cases), log.left(cases)) if log else ([], cases)
    chosen = {On.C: CBackend, On.REFERENCE: ReferenceBackend}[backend]
    ran = outcomes(left, chosen, jobs, limit)
    shown = _shown(log.added(ran) if log else ran, len(left), f"conformance, {backend}")
    return [*known, *shown]


def _shown(ran: Iterable[Outcome], total: int, about: str) -> Iterator[Outcome]:
    """Shows a progress bar on terminals while outcomes arrive."""
    from rich.console import Console
    from rich.progress import track

    from popgraph.support.progress import is_terminal

    console = Console(stderr=True)
    yield from track(ran, about, total, console=console, transient=True, disable=not is_terminal())


def text(backend: str, outcomes: list[Outcome], listed: bool, *, suites: bool = False) -> str:
    """The tables of outcomes; with a table of suites, if they were named."""
    from importlib.metadata import version

    from popgraph.conformance.report import (
        failing_rows,
        group_rows,
        host_lines,
        reason_rows,
        suite_rows,
    )
    from popgraph.support.tables import table

    about = "suites" if suites else f"onnx {version('onnx')}"
    parts = [
        f"{about} on {backend}",
        table(suite_rows(outcomes)) if suites else "",
        table(group_rows(outcomes)),
        "\n".join(host_lines(outcomes)),
        table(failing_rows(outcomes, suites=suites) if listed else reason_rows(outcomes)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"
