"""The compilation target, and the key of this machine in caches."""
