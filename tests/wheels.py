"""Installs the distributions in empty environments of every Python here, and runs the README."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def promised() -> list[str]:
    """The versions of Python in the metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [found[1] for one in project["classifiers"] if (found := PYTHON.fullmatch(one))]


def interpreter(version: str) -> str | None:
    """A Python interpreter of a version, on the path or from pyenv."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{version}"), *kept.glob(f"{version}.*/bin/python")]
    return next((str(place) for place in places if place and _is(str(place), version)), None)


def _is(python: str, version: str) -> bool:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def first_program() -> str:
    """The first program of the README."""
    return (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]


def run(*command: str | Path, folder: Path) -> str:
    """The output of a command; exits if it fails."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(python: str, distribution: Path, folder: Path) -> Iterator[str]:
    """Installs a distribution in an empty environment, and runs the README's program."""
    run(python, "-m", "venv", folder / "venv", folder=folder)
    own = folder / "venv/bin/python"
    run(own, "-m", "pip", "install", "--quiet", distribution, folder=folder)
    yield run(own, "-m", "pip", "check", folder=folder).strip()
    (folder / "first.py").write_text(first_program())
    yield run(own, "first.py", folder=folder).strip().splitlines()[-1]
    run(folder / "venv/bin/popgraph", "view", "net.onnx", "--save", "net.html", folder=folder)
    yield f"{(folder / 'net.html').stat().st_size} bytes of page"


def main(folder: Path) -> int:
    """Checks every distribution with every promised Python, and reports missing interpreters."""
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, folder=folder)
    files = sorted((folder / "dist").iterdir())
    print(run(sys.executable, "-m", "twine", "check", "--strict", *files, folder=folder), end="")
    failed = False
    for version in promised():
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: there is none here")
            failed = True
            continue
        for file in files:
            with tempfile.TemporaryDirectory() as place:
                summary = "; ".join(check(python, file, Path(place)))
            print(f"Python {version}, {file.name}: {summary}", flush=True)
    return int(failed)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(Path(made)))
