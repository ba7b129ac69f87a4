"""The syntax of `.pgraph`: grammar, tree, literals, comments, syntax errors."""
