"""
The hook of mkdocs.yml: makes a site of pages that are read in the repository, too.

The README is its first page. Pages beside it join those of docs/, notebooks become pages, and
links to files of the repository lead to copies of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FIRST = "README.md"
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
DECISIONS = "DECISIONS"
"""The entry of the decisions in the navigation."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    pages = sorted(path.name for path in (ROOT / "docs/decisions").glob("*.md"))
    config.nav = _with_decisions(config.nav, [f"decisions/{name}" for name in pages])
    return config


def _with_decisions(part: Any, pages: list[str]) -> Any:
    if isinstance(part, list):
        return [_with_decisions(one, pages) for one in part]
    if isinstance(part, Mapping):
        return {name: _with_decisions(one, pages) for name, one in part.items()}
    return pages if part == DECISIONS else part


def on_files(files: Files, config: MkDocsConfig) -> Files:
    texts = {f"docs/{one.src_uri}": one.content_string for one in files.documentation_pages()}
    texts |= {name: (ROOT / name).read_text("utf-8") for name in (FIRST, *BESIDE)}
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        texts[f"docs/notebooks/{path.stem}.md"] = notebook(json.loads(path.read_text("utf-8")))
    copied = {target for name, text in texts.items() for target in _files_linked(name, text)}
    for target in sorted(copied):
        files.append(File.generated(config, f"files/{target}", abs_src_path=str(ROOT / target)))
    for name, text in texts.items():
        if (old := files.get_file_from_path(_place(name))) is not None:
            files.remove(old)
        files.append(File.generated(config, _place(name), content=_linked(name, text)))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
    return files


def _place(name: str) -> str:
    """The address in the site of a file of the repository."""
    if name == FIRST:
        return "index.md"
    if name in BESIDE:
        return name
    if name.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", name.removeprefix("docs/"))
    return f"files/{name}"


def _targets(name: str, text: str) -> Iterator[tuple[str, str]]:
    """The links of a page to files of the repository: as written, and from its root."""
    for link in set(LINK.findall(text)):
        target = normpath(join(dirname(name), link))
        if (ROOT / target).exists():
            yield link, target


def _files_linked(name: str, text: str) -> Iterator[str]:
    """The files outside docs/ that a page links to."""
    for _, target in _targets(name, text):
        if not target.startswith("docs/") and target not in (FIRST, *BESIDE):
            yield _file_of(target)


def _file_of(target: str) -> str:
    """The file that stands for a folder: its README, or its first file."""
    path = ROOT / target
    if path.is_file():
        return target
    inside = [path / "README.md", *sorted(path.glob("*.*"))]
    return next(one for one in inside if one.is_file()).relative_to(ROOT).as_posix()


def _linked(name: str, text: str) -> str:
    """The page, its links leading to where files are in the site."""
    places = {}
    for link, target in _targets(name, text):
        if target == "docs/decisions":
            target = min((ROOT / target).glob("*.md")).relative_to(ROOT).as_posix()
        there = _place(target if target.startswith("docs/") else _file_of(target))
        places[link] = relpath(there, dirname(_place(name)) or ".")
    return LINK.sub(lambda match: places.get(match[1], match[1]), text)


def notebook(book: Mapping[str, Any]) -> str:
    """A notebook as Markdown, with what its cells gave."""
    return "\n\n".join(part for cell in book["cells"] for part in _cell(cell)) + "\n"


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield _output(output)


def _output(output: Mapping[str, Any]) -> str:
    forms = output.get("data", {})
    if "text/html" in forms:
        return f'<div class="output">{"".join(forms["text/html"])}</div>'
    if "image/png" in forms:
        picture = "".join(forms["image/png"].split())
        return f'<img alt="what the cell shows" src="data:image/png;base64,{picture}">'
    text = "".join(forms.get("text/plain", output.get("text", "")))
    return f"```text\n{text.rstrip()}\n```"
