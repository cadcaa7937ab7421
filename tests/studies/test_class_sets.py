"""Sets of classes above a threshold: the best threshold among all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from studies.class_sets import best_threshold, mean_f1


@st.composite
def scored_sets(draw):
    """Scores with ties, and true sets that are not empty, of a few examples."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(2, 5)))
    scores = draw(arrays(np.float64, shape, elements=st.integers(-3, 3)))
    true = draw(arrays(np.bool_, shape))
    true[:, draw(st.integers(0, shape[1] - 1))] = True
    return scores, true


@given(scored_sets())
def test_no_threshold_is_better_than_the_best(case):
    scores, true = case
    threshold, f1 = best_threshold(scores, true)
    assert f1 == pytest.approx(mean_f1(scores >= threshold, true))
    assert f1 == pytest.approx(max(mean_f1(scores >= other, true) for other in np.unique(scores)))
