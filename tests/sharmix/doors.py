"""Every map and loss as a function of logits [..., classes] alone, for tests of what all of them promise."""

import torch

import sharmix


def logits(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape or (3, 4), dtype=torch.float64, generator=generator).to(dtype)


def labels(z):
    """A class for each row."""
    rows = z.shape[:-1]
    return torch.arange(rows.numel(), device=z.device).reshape(rows) % z.shape[-1]


def soft_targets(z):
    """A distribution for each row."""
    classes = z.shape[-1]
    weights = torch.arange(1, classes + 1, device=z.device, dtype=torch.promote_types(z.dtype, torch.float32))
    return (weights / weights.sum()).expand(z.shape)


def per_row(z, value):
    return torch.full((*z.shape[:-1], 1), value, dtype=torch.promote_types(z.dtype, torch.float32), device=z.device)


def value_and_gradient(function, z):
    """A map's or loss's output at logits, and the gradient of the sum of its squares."""
    z = z.detach().requires_grad_()
    output = function(z)
    return output.detach(), torch.autograd.grad(output.square().sum(), z)[0]


def output_layer(hidden):
    classes, features = 5, hidden.shape[-1]
    weight = torch.arange(classes * features, device=hidden.device, dtype=torch.float32).sin() * 2
    return weight.reshape(classes, features).to(hidden.dtype)


def build(name, dtype=torch.float64, **parameters):
    """An activation, alpha-ReLU with its threshold."""
    act = sharmix.build_activation(name, **({"tau": 0.3} if name == "alpha_relu" else {}), **parameters)
    return act if dtype == torch.get_default_dtype() else act.to(dtype)


# The entmax package's own autograd functions keep fewer promises.
NAMES = [name for name in sharmix.available_activations() if name != "entmax_package"]

MAPS = {
    "sharmix": sharmix.sharmix,
    "orders above 2": lambda z: sharmix.sharmix(z, 3.0, 3.0),
    "outside the concave region": lambda z: sharmix.sharmix(z, 1.75, 1.25),
    "an order for each row": lambda z: sharmix.sharmix(z, per_row(z, 1.3), 1.5),
    "entmax": sharmix.entmax,
    "sparsemax": sharmix.sparsemax,
    "alpha_relu": sharmix.alpha_relu,
}
CLASS_LOSSES = {
    "loss": lambda z: sharmix.fenchel_young_loss(z, labels(z)),
    "loss of each row": lambda z: sharmix.fenchel_young_loss(z, labels(z), reduction="none"),
    "loss, summed": lambda z: sharmix.fenchel_young_loss(z, labels(z), reduction="sum"),
    "loss, orders above 2": lambda z: sharmix.fenchel_young_loss(z, labels(z), 3.0, 3.0),
    "loss, an order for each row": lambda z: sharmix.fenchel_young_loss(z, labels(z), per_row(z, 1.3)),
    "alpha_relu loss": lambda z: sharmix.alpha_relu_loss(z, labels(z)),
}
SOFT_LOSSES = {
    "smoothed loss": lambda z: sharmix.fenchel_young_loss(z, labels(z), label_smoothing=0.1),
    "soft loss": lambda z: sharmix.fenchel_young_loss(z, soft_targets(z)),
    "alpha_relu soft loss": lambda z: sharmix.alpha_relu_loss(z, soft_targets(z)),
}
LINEAR_LOSS = {"linear loss": lambda z: sharmix.linear_fenchel_young_loss(z, output_layer(z), None, labels(z))}
LOSSES = CLASS_LOSSES | SOFT_LOSSES
EVERYTHING = MAPS | LOSSES | LINEAR_LOSS
