"""Training: tasks, update rules, data, metrics, checkpoints, and the loop that runs steps."""
