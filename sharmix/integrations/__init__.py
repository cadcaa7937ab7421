"""Sparse activations in other libraries: one module for each library, which needs that library to be installed."""
