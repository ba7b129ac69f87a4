"""Writes the tables of the `.pgraph` parser if the grammar or lark has changed."""

from popgraph.builder.pgraph.syntax.parser import TABLES, from_tables, tables

if __name__ == "__main__" and from_tables() is None:
    TABLES.write_text(tables() + "\n", encoding="utf-8")
