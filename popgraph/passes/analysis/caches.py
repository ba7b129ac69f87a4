"""How many bytes do caches hold?"""

SECOND = 1024 * 1024
"""The second cache, which every core has for itself."""

THIRD = 16 * 1024 * 1024
"""What stays in the third cache, which others use too, until it is read again."""
