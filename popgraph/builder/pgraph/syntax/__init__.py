"""The syntax of `.pgraph`: grammar, tree, literals, comments, errors of parsing."""
