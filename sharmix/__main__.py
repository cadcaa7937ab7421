"""`python -m sharmix` prints what computes here, and why nothing faster does."""

from sharmix import show_config

show_config()
