"""The version of the library. `pyproject.toml` reads it without importing torch."""

__version__ = "0.1.0"
