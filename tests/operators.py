"""Measures every operator: how many of ONNX's cases pass, and by which inputs gradients flow."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import onnx

from popgraph.backend import CBackend, ReferenceBackend
from popgraph.conformance.cases import Case, all_cases
from popgraph.conformance.outcome import Status, outcome
from tests.every_type import schemas
from tests.gradient_cases import all_samples
from tests.gradients import slopes_of
from tests.type_outcomes import first_types

RECORD = Path(__file__).parent.parent / "docs" / "operators.json"


def operator(model: onnx.ModelProto) -> str:
    """The operator that a case is about: its only node's."""
    node = model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def is_about_one(case: Case) -> bool:
    return case.kind == "node" and "_expanded" not in case.name and len(case.model.graph.node) == 1


def measured(on: str) -> dict[str, Any]:
    """By operator: how many cases pass, of how many, and the slopes by its inputs."""
    backend = {"c": CBackend, "reference": ReferenceBackend}[on]
    found: dict[str, list[Any]] = defaultdict(lambda: [0, 0, None])
    for name, slopes in slopes_of(all_samples()).items():
        found[name][2] = slopes or None
    for case in filter(is_about_one, all_cases()):
        row = found[operator(case.model)]
        result = outcome(case, backend)
        row[0] += result.status == Status.PASSED
        row[1] += 1
    operators = {name: found[name] for name in sorted(found)}
    head = {"onnx": onnx.__version__, "backend": on}
    return {**head, "operators": operators, "types": measured_types()}


PARTS = 16


def measured_types() -> dict[str, list[Any]]:
    """By operator, the types of its first input that are right, and why the others are not."""
    keys = sorted({(one.domain, one.name) for one in schemas()})
    found: dict[str, list[Any]] = {}
    with ProcessPoolExecutor(2) as pool:
        for some in pool.map(first_types, [keys[part::PARTS] for part in range(PARTS)]):
            for (domain, name), whys in some.items():
                right = sorted(one for one, why in whys.items() if not why)
                rest = {one: why for one, why in sorted(whys.items()) if why}
                found[f"{domain}.{name}".lstrip(".")] = [right, rest]
    return {name: found[name] for name in sorted(found)}


def lines(record: dict[str, Any]) -> str:
    """JSON with an operator in each line."""
    tables = ("operators", "types")
    head = {key: value for key, value in record.items() if key not in tables}
    parts = [f'"{name}": {{\n' + ",\n".join(_rows(record[name])) + "\n}" for name in tables]
    return json.dumps(head)[:-1] + ", " + ", ".join(parts) + "}\n"


def _rows(table: dict[str, Any]) -> list[str]:
    return [f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in table.items()]


if __name__ == "__main__":
    RECORD.write_text(lines(measured(sys.argv[1] if len(sys.argv) > 1 else "c")))
