"""`python -m popgraph` is the command `popgraph`."""

from popgraph.cli import main

main()
