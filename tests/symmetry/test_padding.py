"""Sizes of padded arrays."""

import pytest

from gcr_rl.symmetry.padding import padded_size


@pytest.mark.parametrize(
    ("count", "size"), [(0, 1), (1, 1), (2, 2), (3, 4), (8, 8), (9, 16), (1_025, 2_048)]
)
def test_the_size_is_the_smallest_power_of_two_that_holds_the_count(count, size):
    assert padded_size(count) == size
