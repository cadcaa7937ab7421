"""Blocks of training steps leave torch as they found it."""

from tests.experiments.conftest import torch_as_it_was

__all__ = ["torch_as_it_was"]
