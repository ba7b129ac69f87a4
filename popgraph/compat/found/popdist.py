"""`import popdist` in a child process of a PopART program."""

from popgraph.compat.children import enable_here

enable_here(__name__)
