"""Runs the notebooks of docs/notebooks: `python -m tests.notebooks` stores their outputs."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def paths() -> list[Path]:
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def run(path: Path, folder: Path) -> Any:
    """The notebook after running all cells in a folder."""
    found = read(path)
    found.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(found.cells):
        cell.id = f"cell-{number}"
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            cell.metadata = {}
    client = NotebookClient(found, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute()
    for cell in found.cells:
        cell.metadata = {}  # when it ran
    return found


def main() -> None:
    for path in paths():
        with TemporaryDirectory() as folder:
            found = run(path, Path(folder))
        nbformat.write(found, path)  # type: ignore[no-untyped-call]
        print(f"{path.name}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
