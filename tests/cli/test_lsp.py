"""Tests `popgraph lsp` in a conversation with an editor."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

URI = "file:///net.pgraph"
RIGHT = "graph g(image: f32[N, 4]) -> y {\n    y = Softmax(image)\n}\n"
WRONG = "graph g(image: f32[N, 4]) -> y {\n    y = Softmaxx(imgae)\n}\n"


class Editor:
    """An editor with one open file; `told` are the diagnostics that it was sent."""

    def __init__(self) -> None:
        self.client = LanguageClient("editor", "1")
        self.told: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def told(params: lsp.PublishDiagnosticsParams) -> None:
            self.told.put_nowait(params)

    async def open(self, text: str) -> lsp.PublishDiagnosticsParams:
        await self.client.start_io(sys.executable, "-m", "popgraph", "lsp")
        await self.client.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities()))
        self.client.initialized(lsp.InitializedParams())
        item = lsp.TextDocumentItem(URI, "pgraph", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.told.get()

    async def change(self, text: str) -> lsp.PublishDiagnosticsParams:
        document = lsp.VersionedTextDocumentIdentifier(2, URI)
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))
        return await self.told.get()

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


def test_mistakes_are_told_while_one_writes() -> None:
    async def hold(editor: Editor) -> None:
        told = await editor.open(WRONG)
        starts = [one.range.start for one in told.diagnostics]
        assert starts == [lsp.Position(1, 8), lsp.Position(1, 17)]
        assert "Softmax" in told.diagnostics[0].message
        assert told.diagnostics[0].severity == lsp.DiagnosticSeverity.Error
        told = await editor.change(RIGHT)
        assert list(told.diagnostics) == []

    conversation(hold)


def test_an_editor_gets_types_words_definitions_and_layout() -> None:
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
