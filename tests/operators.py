"""Measures every operator by ONNX's own test cases: what passes, and whether gradients flow."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from popgraph.backend import CBackend, ReferenceBackend
from popgraph.conformance.cases import Case, all_cases
from popgraph.conformance.outcome import Status, outcome
from popgraph.passes.graphcore.training.autodiff import PREFIX, Autodiff
from popgraph.support.errors import PopgraphError
from tests.every_type import schemas
from tests.passes.test_onnx_gradients import forward
from tests.type_outcomes import first_types

RECORD = Path(__file__).parent.parent / "docs" / "operators.json"
LOSS = "sum_of_all"
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)


def operator(model: onnx.ModelProto) -> str:
    """The operator that a case is about: its only node's."""
    node = model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


def is_about_one(case: Case) -> bool:
    return case.kind == "node" and "_expanded" not in case.name and len(case.model.graph.node) == 1


def has_gradient(case: Case) -> bool | None:
    """Whether a gradient of some input of floats comes of a case; None if it has none of these."""
    inputs = case.model.graph.input[: len(case.data_sets()[0][0])]
    floats = [at for at, info in enumerate(inputs) if is_of_floats(info)]
    if not floats or not any(map(is_of_floats, case.model.graph.output)):
        return None
    return any(flows(case, at) for at in floats)


def flows(case: Case, at: int) -> bool:
    """Whether there is a gradient of this input, while all others are constant."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    name = model.graph.input[at].name
    keep_only(model, at, case.data_sets()[0][0])
    try:
        module, compilation = forward(with_sum(model), [name])
        Autodiff(LOSS, wrt=(name,)).run(compilation, module)
    except PopgraphError:
        return False
    return PREFIX + name in str(module)


def with_sum(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with one result: the sum of its first result of floats."""
    name = next(info.name for info in model.graph.output if is_of_floats(info))
    model.graph.node.append(
        onnx.helper.make_node("Cast", [name], ["summands"], to=onnx.TensorProto.FLOAT)
    )
    model.graph.node.append(onnx.helper.make_node("ReduceSum", ["summands"], [LOSS], keepdims=0))
    del model.graph.output[:]
    info = onnx.helper.make_tensor_value_info(LOSS, onnx.TensorProto.FLOAT, [])
    model.graph.output.append(info)
    if not any(one.domain == "" for one in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    return model


def is_of_floats(info: onnx.ValueInfoProto) -> bool:
    return info.type.tensor_type.elem_type in FLOATS


def keep_only(model: onnx.ModelProto, at: int, inputs: Sequence[Any]) -> None:
    """All inputs but one become initializers: structure may depend on them."""
    infos = list(model.graph.input)
    for place, value in enumerate(inputs):
        if place != at and isinstance(value, np.ndarray | np.generic):
            tensor = onnx.numpy_helper.from_array(np.asarray(value), infos[place].name)
            model.graph.initializer.append(tensor)
    del model.graph.input[:]
    given = {tensor.name for tensor in model.graph.initializer}
    model.graph.input.extend(info for info in infos if info.name not in given)


def measured(on: str) -> dict[str, Any]:
    """By operator: how many cases pass, of how many, and whether there is a gradient."""
    backend = {"c": CBackend, "reference": ReferenceBackend}[on]
    found: dict[str, list[Any]] = defaultdict(lambda: [0, 0, None])
    for case in filter(is_about_one, all_cases()):
        row = found[operator(case.model)]
        result = outcome(case, backend)
        row[0] += result.status == Status.PASSED
        row[1] += 1
        if result.status == Status.PASSED and not row[2]:
            tried = has_gradient(case)
            row[2] = row[2] if tried is None else tried
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
