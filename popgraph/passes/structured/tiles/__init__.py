"""The mapping of structured operations onto the tiles of an IPU, and what they cost there."""
