"""
Installs the distributions in empty environments, and runs the commands of the README there.

`python -m tests.wheels` builds both, and checks them with every promised Python that is here.
`python -m tests.wheels FOLDER` checks the files of a folder with this Python.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)")
THIS = ".".join(map(str, sys.version_info[:2]))
"""The version of this Python."""
NO_COMPILER = {"CC": "no-such-compiler"}
"""An environment in which no C compiler works."""


def promised() -> list[str]:
    """The versions of Python in the metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
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
    return _first_block("python")


def first_commands() -> list[list[str]]:
    """The first commands of the README, without their `popgraph`."""
    lines = [line.removeprefix("$ ") for line in _first_block("console").splitlines()]
    commands = [shlex.split(line) for line in lines]
    assert commands and all(words[0] == "popgraph" for words in commands), commands
    return [words[1:] for words in commands]


def _first_block(language: str) -> str:
    text = (ROOT / "README.md").read_text("utf-8")
    return text.split(f"```{language}\n")[1].split("```")[0]


def ran(*command: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The result of a command, without settings of Python from outside."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**clean, "PYTHONUTF8": "1", **variables},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """The output of a command; exits if it fails."""
    done = ran(*command, folder=folder, **variables)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(python: str, distribution: Path, folder: Path) -> Iterator[str]:
    """Installs a distribution in an empty environment, and runs the README's first commands."""
    run(python, "-m", "venv", folder / "venv", folder=folder)
    own = folder / ("venv/Scripts/python.exe" if os.name == "nt" else "venv/bin/python")
    run(own, "-m", "pip", "install", "--quiet", distribution, folder=folder)
    yield run(own, "-m", "pip", "check", folder=folder).strip()
    (folder / "first.py").write_text(first_program(), "utf-8")
    cache = {"POPGRAPH_CACHE_DIR": str(folder / "cache")}
    run(own, "first.py", folder=folder, **cache)
    for words in first_commands():
        run(own, "-m", "popgraph", *words, folder=folder, **cache)
    yield f"the README's program and {len(first_commands())} commands run"
    yield from check_without_compiler(own, folder)


def check_without_compiler(python: Path, folder: Path) -> Iterator[str]:
    """Checks that the reference backend needs no compiler, and that the C backend asks for one."""
    popgraph = [python, "-m", "popgraph"]
    empty: Mapping[str, str] = {**NO_COMPILER, "POPGRAPH_CACHE_DIR": str(folder / "other_cache")}
    model = ["run", "net.onnx", "--random", "--dim", "N=2"]
    run(*popgraph, *model, "--backend", "reference", folder=folder, **empty)
    refused = ran(*popgraph, *model, folder=folder, **empty)
    if not refused.returncode or "no C compiler works" not in refused.stderr:
        sys.exit(f"without a compiler:\n{refused.stdout}{refused.stderr}")
    yield "the reference backend needs no compiler"


def build(folder: Path) -> list[Path]:
    """Builds both distributions into a folder, and checks their metadata."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=ROOT)
    files = sorted(folder.iterdir())
    print(run(sys.executable, "-m", "twine", "check", "--strict", *files, folder=folder), end="")
    return files


def check_all(files: Sequence[Path], pythons: Mapping[str, str | None]) -> list[str]:
    """Checks every distribution with every interpreter; returns the versions that are missing."""
    for version, python in pythons.items():
        if python is None:
            print(f"Python {version}: there is none here")
            continue
        for file in files:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
                summary = "; ".join(check(python, file.resolve(), Path(place).resolve()))
            print(f"Python {version}, {file.name}: {summary}", flush=True)
    return [version for version, python in pythons.items() if python is None]


def main(arguments: Sequence[str]) -> int:
    if arguments:
        files = sorted(Path(arguments[0]).iterdir())
        return int(not files or bool(check_all(files, {THIS: sys.executable})))
    with tempfile.TemporaryDirectory() as made:
        pythons = {version: interpreter(version) for version in promised()}
        return int(bool(check_all(build(Path(made)), pythons)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
