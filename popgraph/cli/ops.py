"""`popgraph ops`: lists ONNX operators and how they are computed, or the operations of a level."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import LEVELS, Level, Load, ir_level
from popgraph.cli.pager import show
from popgraph.support.errors import UnsupportedError
from popgraph.support.names import closest
from popgraph.support.texts import read_text


class Dialect(StrEnum):
    """PopGraph's own IR dialects."""

    PG = "pg"
    GRAPHCORE = "graphcore"
    TILE = "tile"


ABOUT = {
    Level.ONNX: "Every operator of ONNX in all its versions, those of PopART (`ai.graphcore`) and "
    "those of onnxruntime that PopGraph knows (`com.microsoft`), and how each is computed: by a "
    "lowering of its own, by the function by which ONNX defines it, by a definition made of ONNX's "
    "operators, or by Python (a host step). The element types are those of the first input for "
    "which the result was measured to be right, in every version that admits them, and then those "
    "that are not computed, and why. Tests are those of ONNX's suite that are about "
    "one node of the operator, in whatever version, and count what passes on the C backend, "
    "and of these what Python computes (host only); those that nobody can pass are skipped "
    "(`make operators` measures it). A gradient was compared with central differences by "
    "every input of floats, but for those that decide a structure (scales and regions of Resize, "
    "bounds of Range) and settings (the ratio of Dropout); where not all inputs have one, those "
    "are named that do. Below the table is how many operators have a gradient, which have one that "
    "is zero, which have none, and why.",
    Level.GRAPHCORE: "What a network computes.",
    Level.STRUCTURED: "How it is computed: index maps, layouts and schedules.",
    Level.LOOPS: "How it is computed: loops written out.",
    Level.PROGRAM: "How it is computed: calls on buffers.",
}


MEASURED = ("gradient", "tests")
COLUMNS = ("operator", "versions", "how", "in C", "element types")


def command(
    pattern: Annotated[str, typer.Argument(help="Only operators whose name contains this.")] = "",
    level: Annotated[
        Level, typer.Option(parser=ir_level, metavar=LEVELS, help="IR level of the operators.")
    ] = Level.ONNX,
    dialect: Annotated[
        Dialect | None,
        typer.Option(case_sensitive=False, help="Print the reference of a dialect as Markdown."),
    ] = None,
    markdown: Annotated[bool, typer.Option(help="Print the page docs/ops.md.")] = False,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measured test results for that page."),
    ] = None,
    load: Load = None,
) -> None:
    """
    List the operators of ONNX and how each is computed, or those of an IR level.

    \b
    popgraph ops conv
    popgraph ops --level graphcore
    popgraph ops --dialect tile

    Operators of installed extensions, or of --load, are listed with their origin.
    """
    if dialect is not None:
        from popgraph.cli.dialect_page import page
        from popgraph.dialects.registry import OWN

        show(page(OWN[dialect]()).removesuffix("\n"))
        return
    from popgraph.cli.report import load_installed, markdown_page
    from popgraph.support.extensions import OPERATORS
    from popgraph.support.tables import table

    if not markdown:
        load_installed(OPERATORS)
    rows = _onnx(_measured(record), _measured_types(record)) if level == Level.ONNX else _own(level)
    found = [row for row in rows if pattern.lower() in row[0].lower()]
    if not found:
        raise _none(pattern, rows)
    if markdown:
        columns = ("operation", "meaning")
        if level == Level.ONNX:
            columns = (*COLUMNS, *(MEASURED if record else ()))
        typer.echo(markdown_page("Operators", ABOUT[level], columns, found))
        if level == Level.ONNX and not pattern:
            typer.echo(_of_gradients(_slopes(record)))
    else:
        show(table(found))


def _none(pattern: str, rows: list[tuple[str, ...]]) -> UnsupportedError:
    """The error for a pattern that matches no operator."""
    close = closest(pattern, [row[0] for row in rows])
    return UnsupportedError(
        f"no operator name contains {pattern!r}",
        hint=f"the closest is {close}" if close else "`popgraph ops` lists them",
    )


def _measured(record: Path | None) -> dict[str, tuple[str, str]]:
    """The recorded gradients and test results of each operator."""
    if record is None:
        return {}
    operators = json.loads(read_text(record))["operators"]
    return {
        name: (_gradient(slopes or {}), _tests(cases))
        for name, (cases, slopes) in operators.items()
    }


def _slopes(record: Path | None) -> dict[str, dict[str, str]]:
    """For each operator and input, whether the gradient was measured to be nonzero."""
    if record is None:
        return {}
    operators = json.loads(read_text(record))["operators"]
    return {name: slopes for name, (_, slopes) in operators.items() if slopes}


def _tests(cases: Mapping[str, int]) -> str:
    """`8 of 8`; `5 of 5, 5 host only`: names every place of computation except C."""
    from popgraph.conformance.outcome import Computed

    passed, total = sum(cases.get(by, 0) for by in Computed), sum(cases.values())
    others = [f"{count} {name}" for name, count in cases.items() if name != Computed.C]
    return ", ".join([f"{passed} of {total}", *others]) if total else ""


def _measured_types(record: Path | None) -> dict[str, str]:
    """For each operator, the measured types of its first input, and the reasons for others."""
    if record is None:
        return {}
    return {
        name: "; ".join([_families(tuple(right)), *_reasons(rest)])
        for name, (right, rest) in json.loads(read_text(record))["types"].items()
    }


def _reasons(rest: Mapping[str, str]) -> list[str]:
    """`not c64, c128 (no complex numbers in C)`, for each reason."""
    whys = dict.fromkeys(rest.values())
    return [
        f"not {_families(tuple(one for one in rest if rest[one] == why))} ({why})" for why in whys
    ]


def _gradient(slopes: Mapping[str, str]) -> str:
    """The inputs with a gradient: `yes` for all, `zero` for none."""
    moving = [name for name, slope in slopes.items() if slope == "yes"]
    if not moving:
        return "zero" if slopes else ""
    return "yes" if len(moving) == len(slopes) else f"by {', '.join(moving)}"


def _of_gradients(slopes: Mapping[str, Mapping[str, str]]) -> str:
    """Sections with counts of operators by gradient, and the reasons for missing ones."""
    from popgraph.passes.onnx.without_gradient import Flow, flows

    found = flows(slopes)
    count = Counter(flow for flow, _ in found.values())
    reasons: dict[Flow, dict[str, list[str]]] = {Flow.ZERO: {}, Flow.NONE: {}}
    for name, (flow, why) in found.items():
        if flow in reasons:
            reasons[flow].setdefault(why, []).append(name)
    lists = {
        flow: [f"- {why}: {', '.join(names)}" for why, names in whys.items()]
        for flow, whys in reasons.items()
    }
    return "\n".join(
        [
            *("", "## Gradients", ""),
            f"Of {len(found)} operators, {count[Flow.ALL] + count[Flow.SOME]} have a gradient "
            f"({count[Flow.SOME]} of them by some of their inputs), {count[Flow.ZERO]} have one "
            f"that is zero by definition, and {count[Flow.NONE]} have none.",
            *("", "## A gradient of zero", "", *lists[Flow.ZERO]),
            *("", "## Without a gradient", "", *lists[Flow.NONE]),
        ]
    )


def _onnx(
    measured: Mapping[str, tuple[str, str]], types: Mapping[str, str]
) -> list[tuple[str, ...]]:
    """The rows of operators; measurements appear in the last row of each operator."""
    from popgraph.passes.onnx.operator_ways import rows

    found = rows()
    last = {row.title: row for row in found}
    return [
        (
            row.title,
            _ranges(row.versions),
            f"{row.way}, {row.provider_of}" if row.provider_of else row.way,
            "yes" if row.way.is_compiled else "no",
            types.get(row.title, _families(row.types)),
            *(measured.get(row.title, ("", "")) if last[row.title] is row else ("", ""))[
                : 2 * bool(measured)
            ],
        )
        for row in found
    ]


def _ranges(versions: tuple[int, ...]) -> str:
    """`1, 6, 13`; first and last of many versions."""
    if len(versions) > MANY_VERSIONS:
        return f"{versions[0]} to {versions[-1]}"
    return ", ".join(map(str, versions))


MANY_VERSIONS = 3
FAMILIES = {
    "floats": "bf16 f16 f32 f64",
    "ints": "i8 i16 i32 i64",
    "unsigned": "u8 u16 u32 u64",
    "f8": "f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz",
    "small ints": "i2 i4 u2 u4",
}
"""Abbreviations of element types that often occur together."""


def _families(types: tuple[str, ...]) -> str:
    found, rest = [], set(types)
    for name, members in FAMILIES.items():
        if rest >= set(members.split()):
            found.append(name)
            rest -= set(members.split())
    return ", ".join([*found, *sorted(rest)])


def _own(level: Level) -> list[tuple[str, ...]]:
    from popgraph.dialects import tile
    from popgraph.dialects.graphcore import GRAPHCORE
    from popgraph.dialects.graphcore.outside import OUTSIDE

    operations = {
        Level.GRAPHCORE: (*GRAPHCORE.operations, *OUTSIDE.values()),
        Level.STRUCTURED: tile.STRUCTURED,
        Level.LOOPS: (*tile.LOOPS, *tile.LANES),
        Level.PROGRAM: tile.PROGRAM,
    }[level]
    return [
        (operation.name, (inspect.getdoc(operation) or "").strip().split("\n")[0])
        for operation in sorted(operations, key=lambda operation: operation.name)
    ]
