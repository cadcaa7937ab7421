"""What a run changes for its whole process is undone after each test."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """The Trainer of a run sets torch's deterministic mode and the number of threads."""
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.set_num_threads(threads)
    torch.utils.deterministic.fill_uninitialized_memory = filled
