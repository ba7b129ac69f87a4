"""Writes the tables of the `.pgraph` parser anew if they are of another grammar or lark."""

from popgraph.builder.pgraph.syntax.parser import TABLES, from_tables, tables

if __name__ == "__main__" and from_tables() is None:
    TABLES.write_text(tables() + "\n", encoding="utf-8")
