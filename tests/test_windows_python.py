"""Tests that the package needs nothing that Python lacks on Windows, in an emulation of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = '''
import os
from tests import without_posix
without_posix.emulate()
import importlib, warnings, popgraph
warnings.simplefilter("error", RuntimeWarning)
for name in without_posix.modules():
    try:
        importlib.import_module(name)
    except (ImportError, popgraph.PopgraphError) as error:
        assert "torch" in str(error) or "pygls" in str(error), (name, error)
import numpy as np
from popgraph.backends.c.build.toolchain import FLAGS
from popgraph.support.writing import append_to, write_file, write_pair
from pathlib import Path
assert "-pthread" not in FLAGS and "-fPIC" not in FLAGS
net = """
graph g(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = glorot_uniform
    y = x @ w
}
"""
x = np.ones((8, 4), np.float32)
trainer = popgraph.train(net, (x, np.zeros(8, np.int64)), "cross_entropy", "SGD(0.1)", epochs=1)
trainer.save("net.onnx")
trainer.save("net.onnx")
print(popgraph.compile("net.onnx")(x=x)["y"].shape)
write_pair(Path("a"), lambda name: [name.encode()], Path("b"), lambda: [b"second"])
write_pair(Path("a"), lambda name: [name.encode()], Path("b"), lambda: [b"third"])
append_to(Path("b"), b"!")
print(Path("a").read_text(), Path("b").read_text(), len(os.listdir()))
assert list(Path(os.environ["POPGRAPH_CACHE_DIR"], "kernels").glob("*/*/*.dll"))
'''


def test_a_python_without_posix_trains_and_writes(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path / "here",
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "POPGRAPH_CACHE_DIR": str(tmp_path / "cache"),
            "CC": "gcc -fPIC -pthread",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["(8, 3)", "b third! 3"]
