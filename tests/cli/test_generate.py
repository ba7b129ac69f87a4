"""Tests `popgraph generate`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from popgraph.cli import app

BIGRAMS = """
graph bigrams(input_ids: i64[N, length]) -> logits {
    weight table: f32[3, 3] = [[0, 2, 1], [0, 0, 3], [1, 0, 0]]
    logits = table[input_ids]
}
"""


def test_tokens_are_printed(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(BIGRAMS)
    start = ["generate", str(tmp_path / "net.pgraph"), "--ids"]
    for arguments, expected in (
        (["0,1", "--max-new-tokens", "5"], "2,0,1,2,0\n"),
        (["0", "--stop", "2,0", "--stop", "7"], "1,2,0\n"),
        (["0", "--temperature", "0.5", "--top-k", "1", "--max-new-tokens", "2"], "1,2\n"),
    ):
        assert CliRunner().invoke(app, [*start, *arguments]).output == expected
    wrong = CliRunner().invoke(app, [*start, "one"])
    assert wrong.exit_code == 2 and "'one' is not a list of integers such as 1,2,3" in wrong.output
