"""Finds comments and empty lines, and attaches them to the syntax tree."""

from __future__ import annotations

from popgraph.builder.pgraph.syntax.parser import language, with_line_end


class Comments:
    """
    The comments of a text, each returned once, in line order.

    Empty without a text.
    """

    def __init__(self, text: str = "") -> None:
        self._own: dict[int, str] = {}
        """Comments on lines of their own."""
        self._beside: dict[int, str] = {}
        """Comments at the end of a line of code."""
        self._lines = text.split("\n") if text else []
        self._done = 0
        """The last line whose comments were returned."""
        self._strings: set[int] = set()
        """Lines of doc strings, which do not count as empty."""
        if "#" in text or '"""' in text:
            self._find(text)

    def _find(self, text: str) -> None:
        position = 0
        for token in language().lex(with_line_end(text)):
            assert token.start_pos is not None and token.end_pos is not None
            if token.type == "_NEWLINE":
                continue
            if token.type == "DOC":
                self._strings.update(range(token.line or 1, (token.end_line or 1) + 1))
            self._gap(text, position, token.start_pos)
            position = token.end_pos
        self._gap(text, position, len(text))

    def _gap(self, text: str, start: int, end: int) -> None:
        """Collects comments between two tokens."""
        if "#" not in text[start:end]:
            return
        line = text.count("\n", 0, start) + 1
        for number, part in enumerate(text[start:end].split("\n")):
            _, mark, comment = part.partition("#")
            if mark:
                own = not self._lines[line + number - 1].partition("#")[0].strip() and number > 0
                own = own or (start == 0 and number == 0)
                (self._own if own else self._beside)[line + number] = f"#{comment.rstrip()}"

    @property
    def first_string(self) -> int:
        """The line of the first doc string."""
        return min(self._strings, default=1)

    def before(self, line: int) -> list[str]:
        """The comments above a line, with "" for each run of empty lines."""
        found: list[str] = []
        for number in range(self._done + 1, min(line, len(self._lines) + 1)):
            if number in self._own:
                found.append(self._own.pop(number))
            elif number in self._strings or self._lines[number - 1].strip():
                continue
            elif found[-1:] != [""]:
                found.append("")
        self.reach(line - 1)
        return found

    def beside(self, line: int) -> str:
        """The comment at the end of a line, with the space before it."""
        found = self._beside.pop(line, "")
        return f"  {found}" if found else ""

    def reach(self, line: int) -> None:
        """Records that everything up to a line has been printed."""
        self._done = max(self._done, line)

    def inside(self, first: int, last: int, blocks: list[tuple[int, int]]) -> bool:
        """Whether comments occur within these lines, outside of blocks."""
        return any(
            number in self._own or (number in self._beside and number < last)
            for number in range(first, last + 1)
            if not any(start <= number <= end for start, end in blocks)
        )

    def ends_line(self, line: int, word: str) -> bool:
        """Whether a line ends with a token, ignoring a comment."""
        text = self._lines[line - 1] if line <= len(self._lines) else word
        comment = self._beside.get(line)
        return (text.rstrip().removesuffix(comment or "")).rstrip().endswith(word)

    def verbatim(self, begin: tuple[int, int], end: tuple[int, int], margin: str) -> str:
        """
        The text from `begin` to `end` unchanged, indented so that its first line is at `margin`.

        Both are a line and a column. The braces of a block around it may share its lines.
        """
        (first, column), (last, end_column) = begin, end
        lines = self._lines[first - 1 : last]
        old = len(lines[0]) - len(lines[0].lstrip())
        if lines[-1][end_column - 1 :].partition("#")[0].strip():
            lines[-1] = lines[-1][: end_column - 1] + self.beside(last)
        if lines[0][: column - 1].strip():
            lines[0] = " " * old + lines[0][column - 1 :]
        moved = list[str]()
        for number, line in enumerate(lines, first):
            if {number - 1, number} <= self._strings:  # inside a doc string
                moved.append(line.rstrip())
            else:
                kept = line[min(old, len(line) - len(line.lstrip())) :].rstrip()
                moved.append(margin + kept if kept and moved else kept)
        for number in range(first, last + 1):
            self._own.pop(number, None)
            self._beside.pop(number, None)
        self.reach(last)
        return "\n".join(moved)
