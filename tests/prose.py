"""
Lists sentences that a reader of the field has to read twice: `python -m tests.prose PATH ...`.

Reads docstrings, comments and messages of modules, and the pages of the documentation. Each rule
finds a form that is rarely right here. Quotes and code in a text are not judged.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("popgraph", "tests", "examples", "benchmarks", "docs", "changes")
PAGES = ("README.md", "CONTRIBUTING.md")
_PAGES = ("api", "cli", "ops", "passes", "popart", "sizes", "tile")
GENERATED = {f"docs/{name}.md" for name in _PAGES}
"""Pages that `make pages` writes: their sentences are docstrings, which are counted already."""

LONGEST = 32
"""Words of a first sentence; 25 is the aim, and names of operations make some a bit longer."""


@dataclass(frozen=True)
class Text:
    """
    A docstring, comment, message or paragraph, and the line where it begins.

    Errors of PopART's interface are of the kind `quote`: PopART's own sentences may be long.
    """

    path: str
    line: int
    kind: str
    text: str


@dataclass(frozen=True)
class Suspect:
    """A text and the advice of the rules that it breaks."""

    text: Text
    advice: tuple[str, ...]

    def __str__(self) -> str:
        where = f"{self.text.path}:{self.text.line}"
        return f"{where}: {'; '.join(self.advice)} | {' '.join(self.text.text.split())[:110]}"


_ASKING = "ask|check|decide|describe|determine|explain|know|learn|report|say|see|show|state"
_ASKED = "".join(rf"(?<!\b{verb} )(?<!\b{verb}s )" for verb in _ASKING.split("|"))
"""Verbs with an indirect question, which is English: the text says what it computes."""

# Each rule was tried on the whole tree; its exceptions are forms that were found and are right.
RULES: dict[str, str] = {
    # The noun of loops; the verb (turn into, turns off) and "in turn" are English.
    "a turn is an iteration": r"(?:an?|the|one|each|every|all|first|last|next|this|that|another|its"
    r"|of|per|many|more|by|both|known|between) turns?\b(?! (?:on|off|into|out|to)\b)"
    r"|take(?:s|n)? turns|took turns|from turn to turn",
    # The object may be a person: an error tells the user what to do.
    "told, tells: passed, reports, states": r"(?:told|tells?)\b"
    r"(?! (?:you|us|me|users?|readers?|callers?|the user|the reader|the caller)\b)",
    "keep apart, so far apart: distinguish, separate, distance": r"(?:tell\w*|told|tak\w+|took|keep"
    r"|keeps|kept|stand\w*|stood|held|so far|further) (?:[\w`]+ ){0,3}apart\b",
    "a whole number is an integer": r"whole numbers?\b",
    # A latency hides behind work; a branch falls behind, files are left behind.
    "behind: after, at the end of": r"(?<!left )(?<!leave )(?<!leaves )(?<!hide )(?<!hides )"
    r"(?<!hidden )(?<!falls )(?<!fall )(?<!lags )behind\b",
    "of which: two sentences": r"of (?:which|whom)\b",
    "is no: is not a": r"(?<!there )(?:is|are|was|were) no\b(?! (?:longer|more|less|fewer|larger"
    r"|smaller|better|worse|greater|slower|faster|later|earlier|different|wider)\b)"
    r"|that (?:is|are) (?-i:none)\b",
    # A name stands for a value; "as it stands" is English, too.
    "stands: is, is stored": r"(?:stand|stands|stood)\b(?! (?:for|in for)\b)(?<!it stands)",
    "heed: apply, respect": r"heed(?:s|ed|ing)?\b",
    "forgotten, let go: freed, evicted": r"(?:is|are|was|were|be|been) forgotten\b|lets? go\b",
    # "What it means" and "what is new" are English where the subject is in the sentence before.
    "what ...: name the subject": rf"{_ASKED}what (?:(?:is|are|was|were|has|have|had)\b"
    r"(?! (?:new|next|left)\b)|(?:no|others?|nobody|reads?|writes?|computes?|follows|comes|came"
    r"|makes?|needs?|remains|belongs|holds|takes|uses)\b"
    r"|(?:it|they)\b(?! (?:means?|costs?|looks? like|prints?|does|do)\b))",
    "those that: name them": r"those (?:that|which|who|whose)\b",
    # A word can be one of a machine, of 64 bits.
    "in words: with a message": r"in its words\b|(?<!other )(?<!-)in words\b(?! of\b|-)",
    "goes on: continues": r"(?:go|goes|went|going) on\b(?! (?:the|a|an|its|one|this|that)\b)",
    # A clause of degree ends in "that": "so many that they overflow".
    "so many ...: name the number": r"so (?:many|much|long)\b(?![^.;:]{0,80}\bthat\b)",
    "beside each other: adjacent, contiguous": r"(?:beside|behind|under|above|below|next to|after) "
    r"(?:each other|one another)\b",
    "makes of it: turns it into, derives from it": r"(?:makes?|made|making) of (?:it|them|him)\b",
    "whom: two sentences": r"(?<!of )whom\b",
    "without further ado: nothing else to do": r"without further ado\b",
}
START = re.compile(r"(?:What|How|Where|Which|Of|Those|Who|Whose|Whom|As|So|That)\b(?![(.:,])")
"""First words of a docstring without a subject; `Where(...)` and `Where.` are the operation."""
_RULES = {advice: re.compile(rf"\b(?:{rule})", re.IGNORECASE) for advice, rule in RULES.items()}
_ANY = re.compile("|".join(rule.pattern for rule in _RULES.values()), re.IGNORECASE)
_QUOTED = re.compile(
    r'``?[^`]+``?|"[^"\n]{1,60}"|<[^<>\n]{1,60}>|\[[^]]+\]\(|(?<=\| )what [\w ]+ \|'
)
"""Code, quotes, links, and the titles of columns."""
_SENTENCE = re.compile(r"(?<=[.!?:;])\s|\n\s*\n|\n(?:  |- |\* )")


def first_sentence(text: Text) -> int:
    """The number of words of a text's first sentence; formulas and rows of tables have none."""
    if text.text.startswith("|"):
        return 0
    first = _SENTENCE.split(_QUOTED.sub("X", text.text.strip()), maxsplit=1)[0]
    first = re.sub(r"X(?:,? X)+", "X", first)  # A list of names is read at a glance.
    return 0 if "->" in first else len(re.findall(r"[A-Za-z][\w'-]*", first))


def judged(text: Text) -> Suspect | None:
    """The suspect that a text is, if a rule finds something outside of quotes and code."""
    if text.kind == "page" and text.text.startswith("#"):
        return None  # A title may be a question.
    plain = " ".join(_QUOTED.sub(" X ", text.text).split())
    advice = []
    if text.kind == "docstring" and START.match(plain):
        advice.append(f"begins with {plain.split()[0]}: begin with a noun or a verb")
    if _ANY.search(plain):
        advice += [rule for rule, pattern in _RULES.items() if pattern.search(plain)]
    words = first_sentence(text)
    if words > LONGEST and text.kind != "quote":
        advice.append(f"{words} words in the first sentence")
    return Suspect(text, tuple(advice)) if advice else None


# --- texts of modules ---------------------------------------------------------------------------

CALLED = re.compile(r"(?:error|exception|warn|warning|note|fail|refuse)$", re.IGNORECASE)
"""Functions whose arguments are messages: errors, warnings, notes."""
_MESSAGE = re.compile(r"(?:rror|xception|arn|arning|note|fail|refuse)\(|help=|assert ")
"""The begin of a statement's messages: expressions of all others need no look."""
_STRING = re.compile(r'"""[\s\S]*?"""')
_COMMENT = re.compile(r"( *|.*\S  )#(?!:) (.*)")


def message_lines(source: str) -> set[int]:
    """The lines where messages may begin."""
    lines, number, at = set(), 1, 0
    for found in _MESSAGE.finditer(source):
        number += source.count("\n", at, found.start())
        at = found.start()
        lines.add(number)
    return lines


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, without their expressions, where most nodes of a tree are."""
    for statement in body:
        yield statement
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(statement, inner, ()))


def said(node: ast.AST | None) -> Iterator[tuple[int, str]]:
    """The texts in a message; `X` replaces the values of an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (getattr(part, "value", "") for part in node.values)
        yield node.lineno, "".join(part if isinstance(part, str) else "X" for part in parts)
    elif isinstance(node, ast.IfExp | ast.BinOp | ast.BoolOp | ast.Tuple):
        for part in ast.iter_child_nodes(node):
            yield from said(part)


def messages(statement: ast.AST) -> Iterator[tuple[str, int, str]]:
    """The messages of errors, warnings and assertions, and the help of options, by kind."""
    if isinstance(statement, ast.Assert):
        yield from (("message", *one) for one in said(statement.msg))
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            read = CALLED.search(name)
            kind = "quote" if name.startswith("popart_") else "message"
            for value in node.args if read else ():
                yield from ((kind, *one) for one in said(value))
            for keyword in node.keywords:
                if read or keyword.arg == "help":
                    yield from (("message", *one) for one in said(keyword.value))


def docstring(statement: ast.AST) -> str | None:
    """The text of a statement that is a text: of a module, class, function or attribute."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def comments(source: str) -> Iterator[tuple[int, str]]:
    """The comments; adjacent lines are one text."""
    code = _STRING.sub(lambda found: "\n" * found[0].count("\n"), source)
    begin, block = 0, ""
    for number, line in enumerate(code.splitlines(), 1):
        found = _COMMENT.fullmatch(line) if "# " in line else None
        if block and (found is None or found[1].strip()):
            yield begin, block
            block = ""
        if found:
            begin, block = (begin, f"{block} {found[2]}") if block else (number, found[2])
    if block:
        yield begin, block


def module_texts(path: str, source: str) -> Iterator[Text]:
    """The docstrings, comments and messages of a module."""
    calls = message_lines(source)
    for node in statements(ast.parse(source).body):
        line, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if (text := docstring(node)) is not None:
            yield Text(path, line, "docstring", text)
        elif isinstance(node, ast.FunctionDef):
            last = node.body[0].lineno
            node = node.args
        elif hasattr(node, "body"):
            continue
        if not calls.isdisjoint(range(line, last + 1)):
            yield from (Text(path, at, kind, text) for kind, at, text in messages(node))
    yield from (Text(path, line, "comment", text) for line, text in comments(source))


# --- texts of pages, and of the tree ------------------------------------------------------------


def page_texts(path: str, source: str) -> Iterator[Text]:
    """The paragraphs, list items and rows of a page, without its code."""
    begin, block, fenced = 0, "", False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        fresh = re.match(r"\s*(?:[-*|#>]|\d+\.)\s?", line)
        if block and (fenced or fence or fresh or not line.strip()):
            yield Text(path, begin, "page", block)
            block = ""
        if not (fenced or fence) and line.strip() and (block or not line.startswith("    ")):
            begin, block = (begin, f"{block} {line}") if block else (number, line)


def texts(path: str) -> Iterator[Text]:
    """The texts of a module or page, by its path from the root."""
    source = (ROOT / path).read_text()
    return page_texts(path, source) if path.endswith(".md") else module_texts(path, source)


def files(named: Iterable[str] = (*FOLDERS, *PAGES)) -> list[str]:
    """The modules and pages of paths, but for generated pages."""
    found = set()
    for path in map(Path, named):
        inside = (ROOT / path).rglob("*") if (ROOT / path).is_dir() else [ROOT / path]
        found |= {
            one.relative_to(ROOT).as_posix() for one in inside if one.suffix in (".py", ".md")
        }
    return sorted(found - GENERATED)


def suspects(paths: Iterable[str]) -> list[Suspect]:
    """The suspects of modules and pages."""
    return [found for path in paths for text in texts(path) if (found := judged(text))]


def changed_lines(base: str = "HEAD~1") -> dict[str, set[int]]:
    """The lines that differ from a commit, by file; none outside of a repository."""
    command = ["git", "diff", "-U0", "--no-color", base, "--", "*.py", "*.md"]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    lines: dict[str, set[int]] = defaultdict(set)
    name = ""
    for row in ran.stdout.splitlines():
        if row.startswith("+++ b/"):
            name = row[6:]
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", row):
            first, count = int(found[1]), int(found[2] or 1)
            lines[name].update(range(first, first + count))
    return lines


def main() -> None:
    found = suspects(files(sys.argv[1:] or (*FOLDERS, *PAGES)))
    for suspect in found:
        print(suspect)
    print(f"{len(found)} suspects")


if __name__ == "__main__":
    main()
