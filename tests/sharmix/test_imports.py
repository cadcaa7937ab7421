"""The first call of a function takes no second for imports that it does not need.

`python -m tests.sharmix.test_imports` calls the public functions and modules for the first time in a process. It prints
a list of JSON: each call's name, and what the call imported of `HEAVY`. The very first call is in inference mode, which
must change nothing for later ones. Left out are what torch itself imports its compiler for: optimizers, `torch.compile`
and `torch.export`.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HEAVY = {"sympy", "mpmath", "torch._dynamo", "torch._inductor", "triton", "torch.onnx", "networkx", "entmax", "scipy"}
HEAVY |= {"lightning", "hydra", "sklearn", "pandas", "torchmetrics"}
before_sharmix = set(sys.modules)
import sharmix  # noqa: E402
from tests.sharmix import doors  # noqa: E402
from tests.sharmix.cases import every_case  # noqa: E402

imported_with_sharmix = (set(sys.modules) - before_sharmix) & HEAVY


def calls():
    z, y = doors.logits(4, 5, dtype=torch.float32).requires_grad_(), torch.tensor([0, 1, 2, -100])
    weights, learned, soft = torch.randn(7, 5), torch.tensor(1.5, requires_grad=True), doors.soft_targets(z)
    yield "in inference mode", torch.inference_mode()(lambda: sharmix.sharmix(z))
    for name, function in doors.EVERYTHING.items():
        yield name, lambda f=function: f(z).float().sum().backward()
    for name, order in (("sharmix", "q"), ("entmax", "alpha"), ("normmax", "alpha")):
        function = getattr(sharmix, name)
        yield f"{name}, learned", lambda f=function, o=order: f(z, **{o: learned})
        yield f"{name}, half precision", lambda f=function: f(z.bfloat16())
    for name in doors.NAMES:
        act = sharmix.build_activation(name)
        yield f"{name} module", lambda a=act: a(z)
        yield f"{name} module's loss", lambda a=act: a.loss(z, y)
        yield f"{name} module's linear loss", lambda a=act: a.linear_loss(z, weights, None, y)
        for option in ({"label_smoothing": 0.1}, {"weight": torch.ones(5)}, {"ignore_index": 2}):
            yield f"{name} criterion, {option}", lambda n=name, o=option: sharmix.FenchelYoungLoss(n, **o)(z, y % 5)
        yield f"{name} repr", lambda a=act: repr(a)
    yield "brier", lambda: sharmix.SharMiX(learned=True, objective="brier").loss(z, y)
    yield "entropy", lambda: sharmix.sharma_mittal_entropy(soft, 1.5, learned)
    yield "support size", lambda: sharmix.support_size(soft)
    yield "support scores", lambda: sharmix.conformal.support_scores(z, q=1.3, r=1.5)
    yield "prediction sets", lambda: sharmix.conformal.SupportPredictor().calibrate(z, y % 5, 0.5).sets(z)
    yield "attention", lambda: sharmix.attention(z, z, z, "entmax", is_causal=True)
    yield "import sharmix.parallel", lambda: importlib.import_module("sharmix.parallel")
    yield "plain torch", sharmix.plain_torch()(lambda: sharmix.sharmix(z))


@pytest.mark.medium
def test_no_first_call_imports_a_compiler_or_computer_algebra():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.sharmix.test_imports"], cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    with every_case() as case:
        for name, imported in json.loads(done.stdout.splitlines()[-1]):
            with case(call=name):
                assert not imported


if __name__ == "__main__":
    found = [["import sharmix", sorted(imported_with_sharmix)]]
    for name, call in calls():
        before = set(sys.modules)
        output = call()
        if isinstance(output, torch.Tensor) and output.requires_grad:
            output.float().sum().backward()
        found.append([name, sorted((set(sys.modules) - before) & HEAVY)])
    print(json.dumps(found))
