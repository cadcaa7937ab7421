"""What a run changes for its whole process is undone after each test."""

import pytest
import torch


@pytest.fixture(autouse=True)
def torch_as_it_was(monkeypatch):
    """A run sets torch, its random numbers and the environment of its process."""
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS", "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_NVML_BASED_CUDA_CHECK"):
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = filled
    torch.set_num_threads(threads)
    torch.set_rng_state(state)
