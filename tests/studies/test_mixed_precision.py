"""The study of the printed formula's sparsity by precision."""

import torch

from studies import mixed_precision
from studies.study import load_study

STUDY = load_study("mixed_precision")


def test_the_precision_alone_decides_whether_the_printed_formula_has_zeros() -> None:
    logits = 4 * torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    for q in STUDY.settings["orders"]:
        readings = mixed_precision.readings(logits, q, STUDY.settings)
        zeros = {name: int((p == 0).sum()) for name, p in readings.items()}
        assert zeros["float32"] == zeros["bfloat16"] == 0
        assert zeros["float16"] >= zeros[mixed_precision.OWN] > 100
        for p in readings.values():
            torch.testing.assert_close(p.float().sum(-1), torch.ones(50), atol=0.02, rtol=0)
