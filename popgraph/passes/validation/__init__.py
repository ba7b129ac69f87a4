"""Translation validation: proves memory accesses of one compiled program without running it."""
