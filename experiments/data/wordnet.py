"""The ids by which WordNet, and so ImageNet, names its classes."""

import re

WNID = re.compile(r"n\d{8}")
