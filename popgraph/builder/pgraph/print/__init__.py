"""Prints a syntax tree, a graph or a module as `.pgraph` text."""
