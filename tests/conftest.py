"""One thread and fixed examples: a red test is red again on the next run. And the codes that can answer, one by one."""

import hypothesis
import pytest
import torch

import sharmix

torch.set_num_threads(1)

hypothesis.settings.register_profile("deterministic", derandomize=True, deadline=None, database=None, max_examples=50)
hypothesis.settings.load_profile("deterministic")

BACKENDS = sorted({sharmix.backend(), "torch"})


@pytest.fixture(params=BACKENDS, scope="module")
def each_backend(request):
    """The compiled kernel, where it was built, and plain torch."""
    if request.param == "torch":
        with sharmix.plain_torch():
            yield
    else:
        yield
