"""Tests `popgraph lsp` in a conversation with an editor."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

from popgraph.builder.pgraph.tools.diagnostics import checked
from popgraph.builder.pgraph.tools.language_service import LanguageService
from popgraph.builder.pgraph.tools.marks import KINDS
from popgraph.builder.pgraph.tools.uses import with_name
from popgraph.support.errors import PopgraphError

URI = "file:///net.pgraph"
RIGHT = "graph g(image: f32[N, 4]) -> y {\n    y = Softmax(image)\n}\n"
WRONG = "graph g(image: f32[N, 4]) -> y {\n    y = Softmaxx(imgae)\n}\n"


class Editor:
    """An editor with one open file; `published` holds its diagnostics."""

    def __init__(self) -> None:
        self.client = LanguageClient("editor", "1")
        self.published: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: lsp.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(params)

    async def open(self, text: str) -> lsp.PublishDiagnosticsParams:
        await self.client.start_io(sys.executable, "-m", "popgraph", "lsp")
        await self.client.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities()))
        self.client.initialized(lsp.InitializedParams())
        item = lsp.TextDocumentItem(URI, "pgraph", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.published.get()

    async def change(self, text: str) -> lsp.PublishDiagnosticsParams:
        document = lsp.VersionedTextDocumentIdentifier(2, URI)
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))
        return await self.published.get()

    def at(self, line: int, character: int) -> dict[str, Any]:
        return {
            "text_document": lsp.TextDocumentIdentifier(URI),
            "position": lsp.Position(line, character),
        }

    async def close(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()


def conversation(hold: Callable[[Editor], Awaitable[None]]) -> None:
    async def whole() -> None:
        editor = Editor()
        await asyncio.wait_for(hold(editor), 60)
        await editor.close()

    asyncio.run(whole())


def test_diagnostics_follow_edits() -> None:
    async def hold(editor: Editor) -> None:
        published = await editor.open(WRONG)
        starts = [one.range.start for one in published.diagnostics]
        assert starts == [lsp.Position(1, 8), lsp.Position(1, 17)]
        assert "Softmax" in published.diagnostics[0].message
        assert published.diagnostics[0].severity == lsp.DiagnosticSeverity.Error
        published = await editor.change(RIGHT)
        assert list(published.diagnostics) == []

    conversation(hold)


def test_hover_completion_definition_and_formatting() -> None:
    async def hold(editor: Editor) -> None:
        await editor.open(RIGHT)
        client = editor.client
        hover = await client.text_document_hover_async(lsp.HoverParams(**editor.at(1, 18)))
        assert hover is not None
        assert "image: f32[N, 4]" in hover.contents.value  # type: ignore[union-attr]
        place = await client.text_document_definition_async(
            lsp.DefinitionParams(**editor.at(1, 18))
        )
        assert place == lsp.Location(URI, lsp.Range(lsp.Position(0, 8), lsp.Position(0, 13)))
        words = await client.text_document_completion_async(
            lsp.CompletionParams(**editor.at(1, 16))
        )
        assert {"axis=", "image"} <= {one.label for one in words}  # type: ignore[union-attr]
        await editor.change(RIGHT.replace("    y = ", "y="))
        edits = await client.text_document_formatting_async(
            lsp.DocumentFormattingParams(
                lsp.TextDocumentIdentifier(URI), lsp.FormattingOptions(4, True)
            )
        )
        assert [edit.new_text for edit in edits or ()] == [RIGHT]

    conversation(hold)


NET = """def dense(x: f32[inputs], outputs) -> y {
    weight w: f32[inputs, outputs] = zeros
    y = x @ w
}

graph net(image: f32[4]) -> (y) {
    hidden = Relu(image)
    wide = dense(hidden, 3)
    y = Softmax(wide + wide, axis=-1)
}
"""


def places(found: Any) -> list[tuple[int, int, int]]:
    """The line, first and last character of ranges."""
    spans = [getattr(one, "range", one) for one in found]
    return [(span.start.line, span.start.character, span.end.character) for span in spans]


def test_references_rename_and_symbols() -> None:
    async def hold(editor: Editor) -> None:
        published = await editor.open(NET)
        assert list(published.diagnostics) == []
        client, here = editor.client, editor.at(8, 17)
        context = lsp.ReferenceContext(include_declaration=True)
        found = await client.text_document_references_async(
            lsp.ReferenceParams(context=context, **here)
        )
        assert places(found) == [(7, 4, 8), (8, 16, 20), (8, 23, 27)]
        called = await client.text_document_references_async(
            lsp.ReferenceParams(context=context, **editor.at(7, 12))
        )
        assert places(called) == [(0, 4, 9), (7, 11, 16)]
        edit = await client.text_document_rename_async(lsp.RenameParams(new_name="h2", **here))
        assert edit is not None and edit.changes is not None
        assert places(edit.changes[URI]) == places(found)
        assert {one.new_text for one in edit.changes[URI]} == {"h2"}
        with pytest.raises(JsonRpcException, match="'hidden' is already used"):
            await client.text_document_rename_async(lsp.RenameParams(new_name="hidden", **here))
        symbols = await client.text_document_document_symbol_async(
            lsp.DocumentSymbolParams(lsp.TextDocumentIdentifier(URI))
        )
        outline: list[Any] = list(symbols or ())
        named = [(one.name, [inner.name for inner in one.children]) for one in outline]
        assert named == [("dense", ["x", "outputs", "w"]), ("net", ["image"])]

    conversation(hold)


def test_signatures_inlay_hints_and_semantic_tokens() -> None:
    async def hold(editor: Editor) -> None:
        await editor.open(NET)
        client, document = editor.client, lsp.TextDocumentIdentifier(URI)

        async def signature(line: int, character: int) -> tuple[str, int | None]:
            found = await client.text_document_signature_help_async(
                lsp.SignatureHelpParams(**editor.at(line, character))
            )
            assert found is not None
            return found.signatures[0].label, found.active_parameter

        assert await signature(8, 17) == ("Softmax(input, axis=)", 0)
        assert await signature(8, 34) == ("Softmax(input, axis=)", 1)
        assert await signature(7, 25) == ("dense(x, outputs)", 1)
        everything = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))
        hints = await client.text_document_inlay_hint_async(
            lsp.InlayHintParams(document, everything)
        )
        shown = {(one.position.line, one.position.character): one.label for one in hints or ()}
        assert shown[6, 10] == ": f32[4]" and shown[7, 8] == ": f32[3]"
        assert (5, 15) not in shown, "the text says it"
        found = await client.text_document_semantic_tokens_full_async(
            lsp.SemanticTokensParams(document)
        )
        assert found is not None
        kinds = {}
        line, character = 0, 0
        for at in range(0, len(found.data), 5):
            down, right, length, kind, _ = found.data[at : at + 5]
            line, character = line + down, right if down else character + right
            kinds[NET.split("\n")[line][character : character + length]] = KINDS[kind]
        assert kinds["Relu"] == "function" and kinds["dense"] == "method"
        assert kinds["image"] == "parameter" and kinds["hidden"] == "variable"
        assert kinds["f32"] == "type"

    conversation(hold)


def test_a_broken_text_has_no_tokens_and_keeps_its_names() -> None:
    service = LanguageService("net.pgraph")
    service.read(NET)
    assert service.hints() and service.tokens()
    service.read(NET.replace("hidden = Relu(image)", "hidden = Relu(image"))
    assert service.hints() == [] and service.tokens() == []
    assert [one.name for one in service.outline()] == ["dense", "net"]
    assert LanguageService("empty.pgraph").outline() == []


TIED = """def dense(x: f32[n, inputs], outputs, scale=1.0) -> y {
    weight w: f32[inputs, outputs] = zeros
    y = x @ w * scale
}

graph net(image: f32[N, 4]) -> (out, rows) {
    hidden = dense(Relu(image), outputs=3, scale=2.0)
    (h, rows) = loop i in 0..4 with h = hidden {
        h = Tanh(h)
        rows = h
    }
    out = if ReduceSum(h, keepdims=0) > 0 {
        out = h
    } else {
        out = -h
    }
}

train (labels: i32[N]) {
    loss = nll(out, labels)
    optimizer = SGD(0.1)
}
"""


def test_rename_keeps_a_text_valid_or_is_refused() -> None:
    """Renames at every name of a text whose arguments, branches and loops share names."""
    service = LanguageService("net.pgraph")
    service.read(TIED)
    assert not service.now.diagnostics
    done = refused = 0
    for number, line in enumerate(TIED.split("\n"), 1):
        for match in re.finditer(r"[A-Za-z_]\w*", line):
            try:
                spans, name = service.renamed(number, match.start() + 1, "other")
            except PopgraphError:
                refused += 1
                continue
            done += bool(spans)
            assert not checked(with_name(TIED, spans, name)).diagnostics
    assert done > 10 and refused > 5
    service.read(TIED.replace("Relu", "Rulu"))
    with pytest.raises(PopgraphError, match="with errors"):
        service.renamed(7, 5, "other")
