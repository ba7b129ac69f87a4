"""Generation: tokens from a causal language model, one after another."""
