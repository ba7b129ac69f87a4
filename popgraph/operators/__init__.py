"""The pages of operators: what a legal node is, what it means, how it is lowered or computed."""
