"""The torch operators behind every map and loss, their implementations, and their derivatives."""
