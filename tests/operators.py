"""
Measures every operator: the backends of ONNX's cases, and the inputs with gradients.

`python -m tests.operators FOUND.json` reads the output of `popgraph conformance --json`, and
updates docs/operators.json and the table of docs/conformance.md. With `--cases`, gradients and
types are not measured again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import onnx

from popgraph.conformance.cases import Case, all_cases
from popgraph.conformance.outcome import Outcome, Status
from popgraph.conformance.report import counts, group_rows, host_lines, reason_rows
from popgraph.support.tables import markdown_table
from tests.every_type import schemas
from tests.gradient_cases import all_samples
from tests.gradients import slopes_of
from tests.type_outcomes import first_types

DOCS = Path(__file__).parent.parent / "docs"
RECORD = DOCS / "operators.json"
PAGE = DOCS / "conformance.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
"""Markers around the results of the last run in the page."""


def operator(model: onnx.ModelProto) -> str:
    """The operator of a case with one node."""
    node = model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def is_about_one(case: Case) -> bool:
    return case.kind == "node" and "_expanded" not in case.name and len(case.model.graph.node) == 1


def record(outcomes: list[Outcome], known: dict[str, Any]) -> dict[str, Any]:
    """
    All cases by group and by operator, and the slopes and types of each operator.

    Slopes and types that are `known` are not measured again.
    """
    slopes = known.get("slopes") or slopes_of(all_samples())
    cases = of_operators(outcomes)
    operators = {
        name: [dict(cases[name]), slopes.get(name) or None]
        for name in sorted(cases.keys() | slopes.keys())
    }
    return {
        "onnx": onnx.__version__,
        "conformance": counts(outcomes),
        "operators": operators,
        "types": known.get("types") or measured_types(),
    }


def of_operators(outcomes: list[Outcome]) -> dict[str, Counter[str]]:
    """Numbers of cases by operator, and by backend or failure."""
    ended = {each.name: each for each in outcomes}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for case in filter(is_about_one, all_cases()):
        each = ended[case.name]
        passed = each.status == Status.PASSED and each.computed
        found[operator(case.model)][str(passed or each.status)] += 1
    return found


def section(outcomes: list[Outcome]) -> str:
    """The tables of docs/conformance.md."""
    heading, *rows = group_rows(outcomes)
    reasons = reason_rows(outcomes)
    return "\n".join(
        [
            f"All tests of onnx {onnx.__version__}, on the C backend:",
            "",
            markdown_table(heading, rows, " " + "r" * (len(heading) - 1)),
            "",
            *host_lines(outcomes),
            "",
            markdown_table(reasons[0], reasons[1:], "r"),
            "",
        ]
    )


def put_into_page(outcomes: list[Outcome]) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{section(outcomes)}\n{END}{rest.partition(END)[2]}")


def read(file: str) -> list[Outcome]:
    """The outcomes in the output of `popgraph conformance --backend c --json`."""
    tests = json.loads(Path(file).read_text())["backends"]["c"]["tests"]
    return [Outcome(**{**each, "status": Status(each["status"])}) for each in tests]


def known() -> dict[str, Any]:
    """The slopes and types that were measured before."""
    old = json.loads(RECORD.read_text())
    slopes = {name: row[-1] for name, row in old["operators"].items()}
    return {"slopes": slopes, "types": old["types"]}


PARTS = 16


def measured_types() -> dict[str, list[Any]]:
    """By operator, the types of its first input that pass, and reasons why others do not."""
    keys = sorted({(one.domain, one.name) for one in schemas()})
    found: dict[str, list[Any]] = {}
    with ProcessPoolExecutor(2) as pool:
        for some in pool.map(first_types, [keys[part::PARTS] for part in range(PARTS)]):
            for (domain, name), whys in some.items():
                right = sorted(one for one, why in whys.items() if not why)
                rest = {one: why for one, why in sorted(whys.items()) if why}
                found[f"{domain}.{name}".lstrip(".")] = [right, rest]
    return {name: found[name] for name in sorted(found)}


def lines(found: dict[str, Any]) -> str:
    """JSON with one line per operator."""
    tables = ("operators", "types")
    head = {key: value for key, value in found.items() if key not in tables}
    parts = [f'"{name}": {{\n' + ",\n".join(_rows(found[name])) + "\n}" for name in tables]
    return json.dumps(head)[:-1] + ", " + ", ".join(parts) + "}\n"


def _rows(table: dict[str, Any]) -> list[str]:
    return [f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in table.items()]


if __name__ == "__main__":
    file, *options = sys.argv[1:]
    run = read(file)
    RECORD.write_text(lines(record(run, known() if "--cases" in options else {})))
    put_into_page(run)
