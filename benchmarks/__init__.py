"""Measurements of speed and memory, each run by its own name: python -m benchmarks.NAME."""
