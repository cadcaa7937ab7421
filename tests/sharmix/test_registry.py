"""The registry: names, class paths, entry points, their errors, and what learns."""

import pytest
import torch

import sharmix


class Tempered(sharmix.Activation):
    """A third party's activation: softmax at a temperature."""

    def __init__(self, temperature: float = 2.0) -> None:
        super().__init__()
        self.temperature = temperature

    def probabilities(self, logits):
        return torch.softmax(logits / self.temperature, -1)

    def entropy(self, probabilities):
        return self.temperature * torch.special.entr(probabilities).sum(-1)


class NotAnActivation:
    pass


def test_an_unknown_name_lists_the_names_and_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"'sparsemx'.*did you mean sparsemax") as error:
        sharmix.build_activation("sparsemx")
    assert all(name in str(error.value) for name in sharmix.available_activations())
    with pytest.raises(ValueError, match="did you mean sharmix_"):
        sharmix.build_activation("SharMiX")


def test_an_unknown_parameter_is_named_with_those_allowed():
    with pytest.raises(ValueError, match=r"(?s)alpah.*alpha"):
        sharmix.build_activation("entmax", alpah=1.5)
    with pytest.raises(ValueError, match=r"(?s)softmax.*alpha"):
        sharmix.build_activation("softmax", alpha=1.5)


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
    ("path", "error"),
    [
        ("tests.sharmix.test_registry.Absent", ValueError),
        ("no_such_package.Activation", ValueError),
        ("tests.sharmix.test_registry.NotAnActivation", TypeError),
        ("math.pi", TypeError),
    ],
)
def test_a_class_path_that_leads_nowhere_is_named(path, error):
    with pytest.raises(error, match=path):
        sharmix.build_activation(path)


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
