"""`import popdist` in a process that a program of PopART has started."""

from popgraph.compat.children import enable_here

enable_here(__name__)
