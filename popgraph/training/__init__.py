"""Training: what is trained by which update rule, and the driver that runs its steps."""
