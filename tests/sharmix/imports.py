"""Every public function and module, called for the first time in a process; what each call imports.

`python -m tests.sharmix.imports` prints a list of JSON: each call's name, and what it imported of `HEAVY`. Left out are
what torch itself imports its compiler for: optimizers, `torch.compile` and `torch.export`.
"""

import json
import sys

import torch

HEAVY = ("sympy", "mpmath", "torch._dynamo", "torch._inductor", "triton", "torch.onnx", "networkx", "entmax", "scipy")
before = set(sys.modules)
import sharmix  # noqa: E402

assert not (set(sys.modules) - before) & set(HEAVY), "import sharmix"


def functions():
    z, weights = torch.randn(4, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    y, soft = torch.tensor([0, 1, 2, -100]), torch.full((4, 5), 0.2)
    row_orders = torch.full((4, 1), 1.3)
    learned = torch.tensor(1.5, requires_grad=True)
    for name, function in (("sharmix", sharmix.sharmix), ("entmax", sharmix.entmax), ("normmax", sharmix.normmax)):
        yield name, lambda f=function: f(z)
        yield f"{name}, learned", lambda f=function: f(z, learned)
        yield f"{name}, an order for each row", lambda f=function: f(z, row_orders)
        yield f"{name}, q > 2", lambda f=function: f(z, 3.0)
        yield f"{name}, half precision", lambda f=function: f(z.bfloat16())
    yield "support scores", lambda: sharmix.conformal.support_scores(z, q=1.3, r=1.5)
    yield "prediction sets", lambda: sharmix.conformal.SupportPredictor().calibrate(z, y[:1].expand(4), 0.5).sets(z)
    yield "sharmix outside the concave region", lambda: sharmix.sharmix(z, 1.75, 1.25)
    yield "sparsemax", lambda: sharmix.sparsemax(z)
    yield "alpha_relu", lambda: sharmix.alpha_relu(z)
    yield "sharma_mittal_entropy", lambda: sharmix.sharma_mittal_entropy(soft, 1.5, learned)
    yield "support_size", lambda: sharmix.support_size(soft)
    for name in ("fenchel_young_loss", "entmax_loss", "sparsemax_loss", "normmax_loss", "alpha_relu_loss"):
        loss = getattr(sharmix, name)
        yield name, lambda f=loss: f(z, y)
        yield f"{name}, soft", lambda f=loss: f(z, soft)
        for option in ({"reduction": "none"}, {"label_smoothing": 0.1}, {"weight": torch.ones(5)}, {"ignore_index": 2}):
            yield f"{name}, {next(iter(option))}", lambda f=loss, o=option: f(z, y.clamp_min(0), **o)
    yield "attention", lambda: sharmix.attention(z, z, z, "entmax", is_causal=True)
    yield "linear_fenchel_young_loss", lambda: sharmix.linear_fenchel_young_loss(z, weights, None, y)
    for name in sharmix.available_activations():
        if name == "entmax_package":
            continue
        act = sharmix.build_activation(name)
        yield f"{name} module", lambda a=act: a(z)
        yield f"{name} module's loss", lambda a=act: a.loss(z, y)
        yield f"{name} module's linear loss", lambda a=act: a.linear_loss(z, weights, None, y)
        yield f"{name} criterion", lambda n=name: sharmix.FenchelYoungLoss(n, label_smoothing=0.1)(z, y)
        yield f"{name} repr", lambda a=act: repr(a)
    yield "brier", lambda: sharmix.SharMiX(learned=True, objective="brier").loss(z, y)
    yield "plain_torch", lambda: in_plain_torch(z)
    yield "configuration", lambda: sharmix.backend()


def in_plain_torch(z):
    with sharmix.plain_torch():
        return sharmix.sharmix(z)


def differentiated(output):
    if isinstance(output, torch.Tensor) and output.requires_grad:
        output.float().sum().backward()


if __name__ == "__main__":
    found = []
    for name, call in functions():
        before = set(sys.modules)
        differentiated(call())
        found.append([name, sorted((set(sys.modules) - before) & set(HEAVY))])
    print(json.dumps(found))
