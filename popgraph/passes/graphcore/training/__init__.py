"""Training: reverse-mode differentiation and the optimizers' update rules."""
