import pytest
from run_folders import write_run


@pytest.fixture
def make_run(tmp_path):
    """A finished run folder with curves that rise from ``start`` to ``end`` at ``speed``."""
    return lambda name="run", **options: write_run(tmp_path / name, **options)
