"""Prints the sizes of files and functions for `make sizes`."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent


def main() -> None:
    files, functions = [], []
    for path in sorted((ROOT / "popgraph").rglob("*.py")):
        text = path.read_text()
        name = path.relative_to(ROOT).as_posix()
        files.append((text.count("\n"), name))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                functions.append((size, f"{name}:{node.lineno} {node.name}"))
    for title, rows in (("files", files), ("functions", functions)):
        sizes = [size for size, _ in rows]
        print(f"{len(rows)} {title}, {sum(sizes)} lines, median {median(sizes):.0f}, largest:")
        for size, name in sorted(rows, reverse=True)[:12]:
            print(f"  {size:5d} {name}")


if __name__ == "__main__":
    main()
