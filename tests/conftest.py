"""Settings of every test: one thread and fixed random examples, so that a failing test fails again on the next run."""

import hypothesis
import torch

torch.set_num_threads(1)

hypothesis.settings.register_profile("deterministic", derandomize=True, deadline=None, database=None, max_examples=50)
hypothesis.settings.load_profile("deterministic")
