"""How fast is inference, next to onnxruntime and OpenVINO? One model per process, as JSON."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
from models import model

STARTUP = """
import sys, time
start = time.perf_counter()
import popgraph
popgraph.compile(sys.argv[1])
print(time.perf_counter() - start)
"""


def startup(path: Path) -> float:
    """Seconds from `import popgraph` to a model that can be called, in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", STARTUP, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return float(done.stdout)


def measure(name: str, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything about one model."""
    cold, warm = startup(path), startup(path)  # the second finds its program in the cache
    from popgraph.cli import timing
    from popgraph.cli.bench import Bench
    from popgraph.compiler import load

    timing.pin(arguments.threads)
    module, compilation = load(path)
    bench = Bench(name, module, compilation, arguments.threads)
    for peer in ("onnxruntime", "openvino"):
        bench.invite(peer)
    bench.race(arguments.seconds, arguments.rounds)
    found = asdict(bench.result(arguments.accuracy))
    return found | {"cold_s": cold, "warm_s": warm}


def profile(arguments: argparse.Namespace, path: Path) -> str:
    """Where our program spends its time."""
    from popgraph.cli import timing
    from popgraph.cli.profile import report, text
    from popgraph.compiler import load

    timing.pin(arguments.threads)
    given = (arguments.name, *load(path), arguments.threads, arguments.rounds)
    return text(report(*given), 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
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
        if arguments.profile:
            print(profile(arguments, path))
        else:
            print(json.dumps(measure(arguments.name, path, arguments)))


if __name__ == "__main__":
    main()
