"""Templates of random nodes, by operator family."""
