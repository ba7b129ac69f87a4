"""Templates of random nodes, by what the operators do."""
