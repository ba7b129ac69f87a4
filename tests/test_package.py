"""Tests the contents of the wheel and of the source distribution."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import popgraph

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


@pytest.fixture
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


def test_source_distribution_holds_all_that_tests_and_docs_need(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as held:
        names = {name.partition("/")[2] for name in held.getnames()}
    wanted = [
        ROOT / name for name in ("popgraph", "tests", "docs", "examples", "benchmarks", "changes")
    ]
    files = [path for folder in wanted for path in folder.rglob("*") if path.is_file()]
    files += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "CITATION.cff", ROOT / ".ci/run"]
    for path in files:
        if "__pycache__" not in path.parts:
            assert path.relative_to(ROOT).as_posix() in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_metadata_of_the_wheel(wheel: Path) -> None:
    """The version is defined once, and the metadata name this Python."""
    with zipfile.ZipFile(wheel) as archive:
        (file,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(file).decode())
    assert metadata["Version"] == popgraph.__version__
    assert metadata["License-Expression"] == "MIT" and metadata["Requires-Python"] == ">=3.11"
    named = metadata.get_all("Classifier", [])
    assert f"Programming Language :: Python :: 3.{sys.version_info.minor}" in named
    assert "# PopGraph" in metadata.get_payload()


def test_wheel_holds_every_module_and_no_stray_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert all(top == "popgraph" or top.endswith(".dist-info") for top in tops), tops
    kept = {".py", ".h", ".lark", ".typed"}
    for path in (ROOT / "popgraph").rglob("*"):
        if path.suffix in kept and "__pycache__" not in path.parts:
            assert path.relative_to(ROOT).as_posix() in names


def test_wheel_runs_from_its_own_folder(wheel: Path, tmp_path: Path) -> None:
    """The wheel's files alone (with this environment's dependencies) run a model."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = (
        "import sys; sys.path.insert(0, 'site')\n"
        "import numpy as np, popgraph\n"
        "assert popgraph.__file__.replace(chr(92), '/').endswith('site/popgraph/__init__.py')\n"
        "builder = popgraph.Builder()\n"
        "x = builder.addInputTensor(popgraph.TensorInfo('FLOAT', [3]), 'x')\n"
        "y = builder.aiOnnx.add([x, x])\n"
        "builder.addOutputTensor(y)\n"
        "print(popgraph.compile(builder)(x=np.ones(3, np.float32))[y].tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[2.0, 2.0, 2.0]"


def test_stock_xdsl_opt_runs_its_own_passes_and_ours() -> None:
    """Two passes of one name in installed packages would break every xDSL tool at its start."""
    module = "builtin.module { func.func @f() { func.return } }"
    passes = "canonicalize,cse,dce,popgraph-canonicalize,popgraph-cse,popgraph-dce,expand"
    arguments = ["", "-p", passes, "-f", "mlir"]
    script = f"import sys; sys.argv = {arguments}; from xdsl.tools.xdsl_opt import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], input=module, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "func.func @f" in done.stdout
