"""The token numbers that mean the same in every vocabulary of a sequence model."""

PADDING, UNKNOWN, BEGIN, END = range(4)
FIRST = 4  # the first number that a vocabulary gives its own tokens
