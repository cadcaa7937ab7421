"""Sparse losses of logits whose classes are split over the processes of a group, as in tensor parallelism.

Cross-entropy needs three all-reduces for such logits, one after the other. A sparse loss needs one all-gather of a few
numbers a row where the support is small, and its gradient needs no communication.
"""

from sharmix.parallel.criterion import VocabParallelLoss
from sharmix.parallel.linear_loss import vocab_parallel_linear_loss
from sharmix.parallel.loss import vocab_parallel_loss

__all__ = ["VocabParallelLoss", "vocab_parallel_linear_loss", "vocab_parallel_loss"]
