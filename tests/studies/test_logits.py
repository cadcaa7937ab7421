"""Logits of public probabilities and of finished runs."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import experiments
import sharmix
from experiments.errors import ConfigurationError
from studies import logits as module
from studies.logits import LabelledLogits, finite, logits_of, network_logits, public_logits
from tests.end_to_end.runner import succeed

QUICK = ["experiment=digits", "activation=sparsemax", "trainer.max_epochs=1"]


def test_the_logits_of_probabilities_give_them_back(tmp_path, monkeypatch):
    p = np.array([[0.7, 0.3, 0.0], [0.25, 0.5, 0.25]])
    arrays = {"probabilities": p, "labels": np.array([0, 2], dtype=np.uint16)}
    files = {}
    for part, array in arrays.items():
        np.save(tmp_path / f"{part}.npy", array)
        digest = hashlib.sha256((tmp_path / f"{part}.npy").read_bytes()).hexdigest()
        files[part] = {"file": f"{part}.npy", "url": "https://example.org", "sha256": digest}
    (tmp_path / "sets.yaml").write_text(yaml.safe_dump({"own": files}))
    monkeypatch.setattr(module, "PROBABILITIES", tmp_path / "sets.yaml")
    found = public_logits("own", tmp_path)
    assert found.labels.tolist() == [0, 2]
    assert found.logits.exp().numpy() == pytest.approx(p)
    assert found.activation(found.logits)[1].tolist() == pytest.approx(p[1])
    smallest = 0.25  # of the positive ones, in place of 0
    assert finite(found.logits).exp().numpy() == pytest.approx(np.where(p > 0, p, smallest))


def test_a_network_with_learned_orders_is_refused(monkeypatch):
    learned = LabelledLogits(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), sharmix.SharMiX(learned=True))
    monkeypatch.setattr(module, "network_logits", lambda overrides, seed, data: learned)
    source = {"data_set": "digits", "network": "SharMiX"}
    settings = {"networks": {"digits": {"SharMiX": {"overrides": ["experiment=digits", "activation=sharmix_learned"]}}}}
    with pytest.raises(ConfigurationError, match=r"activation=sharmix_learned: the map has learned orders; name one"):
        logits_of(source, 21, settings, None)


@pytest.mark.medium
def test_the_logits_of_a_run_are_those_of_its_network_and_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    succeed(tmp_path / "outputs", *QUICK, "seed=3")
    [folder] = Path("outputs/digits").glob("sparsemax-*/seed-3")
    found = network_logits(QUICK, 3, tmp_path)

    run, data = experiments.load_run(folder)
    examples = data.data.test
    inputs = torch.cat([batch.inputs for batch in data.test_dataloader()])
    with torch.inference_mode():
        assert found.activation(found.logits).float().allclose(run.probabilities(inputs), atol=1e-6)
    assert found.labels.equal(examples.targets)
    assert found.logits.dtype == torch.float64

    (folder / "weights.ckpt").unlink()  # no longer needed
    again = network_logits(QUICK, 3, tmp_path)
    assert again.logits.equal(found.logits)
    with pytest.raises(
        ConfigurationError, match=r"no finished run; .*make studied_networks.*experiment=digits .* seed=4"
    ):
        network_logits(QUICK, 4, tmp_path)
