"""The target that code is made for, and the key of this machine in caches."""
