"""The mathematics of the maps, in plain torch, one concept a module."""
