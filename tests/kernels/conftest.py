import pytest

from zoo import kernels


@pytest.fixture(autouse=True)
def kernels_on():
    """Also if the suite runs with ZOO_KERNELS=0."""
    before = kernels.enable()
    yield
    kernels.enable(before)
