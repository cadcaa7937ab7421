"""The registry: names, class paths, entry points, their errors, and what learns."""

import pytest
import torch

import sharmix

NAMES = sharmix.available_activations()


class Tempered(sharmix.Activation):
    """A third party's activation: softmax at a temperature."""

    def __init__(self, temperature: float = 2.0) -> None:
        super().__init__()
        self.temperature = temperature

    def probabilities(self, logits):
        return torch.softmax(logits / self.temperature, -1)

    def entropy(self, probabilities):
        return self.temperature * torch.special.entr(probabilities).sum(-1)


@pytest.mark.parametrize(
    ("name", "parameters", "error", "message"),
    [
        ("sparsemx", {}, ValueError, ".*".join(["'sparsemx'", "did you mean sparsemax", *NAMES])),
        ("SharMiX", {}, ValueError, "did you mean sharmix_"),
        ("entmax", {"alpah": 1.5}, ValueError, "alpah.*alpha"),
        ("softmax", {"alpha": 1.5}, ValueError, "softmax.*alpha"),
        ("tests.sharmix.test_registry.Absent", {}, ValueError, "tests.sharmix.test_registry.Absent"),
        ("no_such_package.Activation", {}, ValueError, "no_such_package.Activation"),
        ("fractions.Fraction", {}, TypeError, "fractions.Fraction"),
        ("math.pi", {}, TypeError, "math.pi"),
        (sharmix.Entmax, {}, TypeError, "a string; got <class .*Entmax"),
        (None, {}, TypeError, "a string; got None"),
        ("sharmix", {"alpha": 1.5}, ValueError, "sharmix has no parameter alpha"),
    ],
)
def test_what_cannot_be_built_is_named_with_what_there_is(name, parameters, error, message):
    with pytest.raises(error, match=message):
        sharmix.build_activation(name, **parameters)


def test_a_class_path_builds_a_third_partys_activation_and_its_loss_follows():
    act = sharmix.build_activation("tests.sharmix.test_registry.Tempered", temperature=0.5)
    z = torch.tensor([[1.0, 0.0, -2.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1])
    torch.testing.assert_close(act(z), torch.softmax(2 * z, -1))
    loss = act.loss(z, y)
    expected = 0.5 * torch.nn.functional.cross_entropy(2 * z, y)
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(gradient, (act(z) - torch.eye(3)[1]).detach())


@pytest.mark.parametrize(
    ("entropy", "shape"),
    [(torch.special.entr, r"\(1, 3\)"), (lambda p: torch.special.entr(p).sum(0), r"\(3,\)"), (torch.sum, r"\(\)")],
)
def test_an_entropy_that_is_not_one_number_a_row_is_named(entropy, shape):
    act = Tempered()
    act.entropy = entropy
    with pytest.raises(ValueError, match=f"Tempered.entropy must return one number for each row, got shape {shape}"):
        act.loss(torch.zeros(1, 3), torch.tensor([0]))


def test_an_entropy_may_be_the_same_number_for_all_rows():
    act = Tempered()
    act.entropy = lambda probabilities: 0.0
    assert act.conjugate(torch.zeros(2, 3)).tolist() == [0, 0]


class Passing(sharmix.SharMiX):
    def __init__(self, **parameters):
        super().__init__(**parameters)


def test_a_class_may_pass_its_parameters_on():
    assert sharmix.build_activation("tests.sharmix.test_registry.Passing", q=1.5, r=1.5).q == 1.5


def test_an_entry_point_is_available_and_replaces_no_name_of_the_library(monkeypatch, tmp_path):
    """An installed distribution, as far as importlib.metadata can tell."""
    folder = tmp_path / "third_party-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    entry = " = tests.sharmix.test_registry:Tempered\n"
    (folder / "entry_points.txt").write_text(f"[sharmix.activations]\ntempered{entry}softmax{entry}")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "tempered" in sharmix.available_activations()
    assert isinstance(sharmix.build_activation("tempered", temperature=1.0), Tempered)
    assert sharmix.available_activations().count("softmax") == 1
    assert not isinstance(sharmix.build_activation("softmax"), Tempered)


def test_sharmix_is_the_fixed_one_wherever_entmax_is_a_name():
    assert repr(sharmix.build_activation("sharmix", q=1.5)) == repr(sharmix.build_activation("sharmix_fixed", q=1.5))
    query = torch.randn(1, 1, 4, 8)
    mine, theirs = (sharmix.attention(query, query, query, name) for name in ("sharmix", "sharmix_fixed"))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert "sharmix" not in sharmix.available_activations()  # each activation is listed once
