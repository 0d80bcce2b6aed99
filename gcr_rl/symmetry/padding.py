"""Sizes of padded arrays: every length is compiled anew, so there are few of them."""


def padded_size(count: int) -> int:
    """The smallest power of two that is at least ``count`` and 1."""
    return 1 << max(count - 1, 0).bit_length()
