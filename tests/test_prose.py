"""Tests that docstrings, comments, messages and pages are easy to read: the budget of suspects."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import prose
from tests.prose import Suspect, Text

BUDGET = 20
"""
Suspects in the whole tree. It only falls: lower it when the count has fallen.

`python -m tests.prose PATH` lists the suspects of files and folders.
"""
SLACK = 20
"""Suspects below the budget that are accepted, so that branches can be merged in any order."""


def listing(found: list[Suspect]) -> str:
    """The worst files, and the suspects of changed lines, or the first ones."""
    counts = Counter(suspect.text.path for suspect in found)
    changed = prose.changed_lines()
    new = [one for one in found if one.text.line in changed.get(one.text.path, ())]
    title = "in lines that the last commit changed" if new else "the first ones"
    lines = [f"  {count:4d} {path}" for path, count in counts.most_common(10)]
    return "\n".join(["worst files:", *lines, f"{title}:", *map(str, (new or found)[:20])])


def test_the_number_of_suspect_sentences_falls() -> None:
    found = prose.suspects(prose.files())
    assert len(found) <= BUDGET, (
        f"{len(found)} suspects, and the budget of tests/test_prose.py is {BUDGET}: rewrite "
        f"the new ones (python -m tests.prose PATH lists suspects)\n{listing(found)}"
    )
    assert len(found) >= BUDGET - SLACK, (
        f"only {len(found)} suspects: lower BUDGET of tests/test_prose.py to {len(found)}"
    )


def advice(text: str, kind: str = "docstring") -> str:
    found = prose.judged(Text("popgraph/a.py", 1, kind, text))
    return "; ".join(found.advice) if found else ""


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("What needs no lowering.", "begins with What"),
        ("How many threads there are.", "begins with How"),
        ("Where a row begins.", "begins with Where"),
        ("Of the variables, which are contiguous.", "begins with Of"),
        ("Those of a group.", "begins with Those"),
        ("As `relu`, for vectors.", "begins with As"),
        ("The values of the first turn.", "a turn"),
        ("Two buffers take turns.", "a turn"),
        ("A pass is told the machine.", "told"),
        ("Names tell values apart.", "keep apart"),
        ("The axis is a whole number.", "a whole number"),
        ("The rows behind the last one.", "behind"),
        ("Two buffers, of which one is written.", "of which"),
        ("The value is no constant.", "is no"),
        ("A list of inputs that are none.", "is no"),
        ("The value stands in a register.", "stands"),
        ("The printer heeds the width.", "heed"),
        ("It is forgotten after a pass.", "forgotten"),
        ("The copy of what is read.", "what ..."),
        ("Removes what nobody uses.", "what ..."),
        ("Removes those that are dead.", "those that"),
        ("Raises an error in words.", "in words"),
        ("The loop goes on with the next row.", "goes on"),
        ("Waits so many seconds.", "so many"),
        ("Rows lie beside each other.", "beside each other"),
        ("The pass and what the printer makes of it.", "makes of it"),
        ("The caller, whom it serves.", "whom"),
        ("It works without further ado.", "without further ado"),
        ("Reads " + "a word and " * 16 + "ends.", "first sentence"),
    ],
)
def test_riddles_are_suspects(text: str, rule: str) -> None:
    assert rule in advice(text)


@pytest.mark.parametrize(
    "text",
    [
        "`Where(condition, x, y)` of ONNX.",
        "Whether a value is a constant.",
        "Each buffer in turn; the pass turns loops into calls and turns off checks.",
        "An error tells the user which option to change.",
        "The stride: rows are 64 bytes apart.",
        "The load hides behind the multiplication: latencies hidden behind work cost nothing.",
        "There is no gradient, and the value is no longer read.",
        "The name stands for a value, as it stands.",
        "The text says what it computes; the table shows what is kept.",
        "Rounds as those of NumPy do.",
        "In other words, a vector in words of 64 bits.",
        "The result goes on the stack.",
        "Some are so many that they overflow; so few lanes would be empty.",
        "Attributes that are None are omitted.",
        "[What is trusted](environment.md#what-is-trusted) lists data.",
        "| room | what it holds |",
        "Threads do not wait for each other.",
        'The message "what is told behind it" is quoted, and so is `what is`.',
        "y = map f(x); z = g(y)  ->  z = g(f(x))",
        "The types are " + "`f32`, " * 40 + "and others.",
    ],
)
def test_plain_sentences_pass(text: str) -> None:
    assert not advice(text)


def test_only_docstrings_begin_with_a_subject() -> None:
    assert not advice("So the second loop may start early.", "comment")
    assert not advice("# What is trusted", "page")


def test_sentences_of_popart_may_be_long() -> None:
    text = "The buffer " + "has a word and " * 12
    assert advice(text, "message") and not advice(text, "quote")


MODULE = '''"""Docstring of a module."""

WIDTH = 4  # Comment at the end of a line.
"""Docstring of a name."""

# Comment of
# two lines.


def function(option: int = Option(help="Help of an option.")) -> None:
    """Docstring of a function."""
    text = """
    # Text, not a comment.
    """
    assert option, "message of an assertion"
    if option > 2:
        raise ValueError(f"{option} is an" + " error", hint="hint")
    raise popart_exception("sentence of PopART")
'''
PAGE = """# Title

A paragraph
of two lines.

- an item
- another
  item

| row | one |

```python
x = 1  # code
```
    indented code
"""


def test_texts_of_a_module() -> None:
    assert {(one.line, one.kind, one.text) for one in prose.module_texts("a.py", MODULE)} == {
        (1, "docstring", "Docstring of a module."),
        (3, "comment", "Comment at the end of a line."),
        (4, "docstring", "Docstring of a name."),
        (6, "comment", "Comment of two lines."),
        (10, "message", "Help of an option."),
        (11, "docstring", "Docstring of a function."),
        (15, "message", "message of an assertion"),
        (17, "message", "X is an"),
        (17, "message", " error"),
        (17, "message", "hint"),
        (18, "quote", "sentence of PopART"),
    }


def test_texts_of_a_page() -> None:
    assert [(one.line, one.text) for one in prose.page_texts("a.md", PAGE)] == [
        (1, "# Title"),
        (3, "A paragraph of two lines."),
        (6, "- an item"),
        (7, "- another   item"),
        (10, "| row | one |"),
    ]


def test_generated_pages_are_left_out() -> None:
    found = prose.files()
    assert "docs/guide.md" in found and "popgraph/__init__.py" in found
    assert not prose.GENERATED & set(found)
    assert all((prose.ROOT / page).exists() for page in prose.GENERATED)
