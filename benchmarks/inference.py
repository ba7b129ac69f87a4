"""Benchmarks inference of one model beside onnxruntime and OpenVINO, as JSON."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
from models import known, model
from onnx import helper
from spent import Spent

from popgraph.support.files import SETTLED

Types = dict[str, tuple[str, list[int]]]
"""The element type and the shape of each input."""

STATUS = Path("/proc/self/status")
"""Linux's memory statistics of a process."""

STARTUP = """
import json, sys
sys.path.append(sys.argv[2])
from spent import spent

def start():
    import popgraph
    popgraph.compile(sys.argv[1], quick=False)

print(json.dumps(spent(start)))
"""

MEMORY = """
import json, re, sys
import numpy as np
import {module}

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

before, path, types = peak(), sys.argv[1], json.loads(sys.argv[2])
inputs = {{name: np.zeros(shape, kind) for name, (kind, shape) in types.items()}}
{run}
print(peak() - before)
"""
RUNS = {
    "popgraph": "popgraph.compile(path, threads=1, quick=False)(inputs)",
    "onnxruntime": """
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
onnxruntime.InferenceSession(path, options).run(None, inputs)
""",
}


def startup(path: Path) -> Spent:
    """Time from `import popgraph` to a callable model, in a new process."""
    found: Spent = said(STARTUP, path, Path(__file__).parent)
    return found


def memory(path: Path, types: Types, module: str) -> float:
    """Peak memory in megabytes that loading and one run add to the imports."""
    script = MEMORY.format(module=module, run=RUNS[module])
    return float(said(script, path, json.dumps(types)))


def said(script: str, *arguments: object) -> Any:
    """The JSON output of a script in a new process."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise SystemExit(lines[-1] if lines else f"exit code {done.returncode} of {command[0]}")
    return json.loads(done.stdout)


def types_of(path: Path) -> Types:
    """Types of the inputs without initializers."""
    graph = onnx.load(path, load_external_data=False).graph
    filled = {each.name for each in graph.initializer}
    types = {v.name: v.type.tensor_type for v in graph.input if v.name not in filled}
    return {
        name: (
            helper.tensor_dtype_to_np_dtype(type_.elem_type).name,
            [dim.dim_value for dim in type_.shape.dim],
        )
        for name, type_ in types.items()
    }


def measure(name: str, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """All measurements of a model."""
    cold, warm = startup(path), startup(path)  # The second one finds its program in the cache.
    types = types_of(path)
    from popgraph.compiler import load
    from popgraph.measure import timing
    from popgraph.measure.comparison import Comparison

    timing.pin(arguments.threads)
    module, compilation = load(path)
    comparison = Comparison(name, module, compilation, arguments.threads)
    for peer in ("onnxruntime", "openvino"):
        comparison.invite(peer)
    comparison.race(arguments.seconds, arguments.rounds)
    found = asdict(comparison.result(arguments.accuracy))
    ran = [row["name"] for row in found["rows"] if row["name"] in RUNS and not row["refusal"]]
    took = {module: memory(path, types, module) for module in ran if STATUS.exists()}
    return found | {"cold": cold, "warm": warm, "memory_mb": took}


def profile(arguments: argparse.Namespace, path: Path) -> str:
    """The time of our program by kernel."""
    from popgraph.compiler import load
    from popgraph.measure import timing
    from popgraph.measure.profile import report
    from popgraph.measure.profile_report import text

    timing.pin(arguments.threads)
    given = (arguments.name, *load(path), arguments.threads, arguments.rounds)
    return text(report(*given), 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", type=known)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="show our kernels instead")
    parser.add_argument("--accuracy", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POPGRAPH_CACHE_DIR"] = str(Path(folder) / "cache")
        path = Path(folder) / "model.onnx"
        onnx.save(model(arguments.name), path)
        time.sleep(SETTLED)  # A brand-new file may still change, so every start reads it again.
        if arguments.profile:
            print(profile(arguments, path))
        else:
            print(json.dumps(measure(arguments.name, path, arguments)))


if __name__ == "__main__":
    main()
