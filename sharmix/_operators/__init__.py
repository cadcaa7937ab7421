"""The autograd nodes and torch operators behind every map and loss, and their implementations."""
