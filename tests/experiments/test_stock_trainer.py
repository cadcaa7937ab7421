"""Modules and data work under Lightning's own Trainer: without run.py, Hydra or a callback of ours."""

import copy
import math
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset

from experiments.errors import UserError
from tests.experiments.building import classifier, copies, digits, stock_trainer, translator


@pytest.mark.parametrize(  # the medium ones are of a translator
    "case",
    ["classifier", *(pytest.param(name, marks=pytest.mark.medium) for name in ("alpha_relu", "sharmix_learned"))],
)
def test_a_stock_trainer_fits_validates_tests_and_predicts(case):
    data = digits() if case == "classifier" else copies()
    module = classifier("sharmix_learned") if case == "classifier" else translator(data, case)
    before = copy.deepcopy(module.network.state_dict())
    trainer = stock_trainer()

    trainer.fit(module, data)
    fitted = plain(trainer.callback_metrics)
    main = "accuracy" if case == "classifier" else "bleu"
    splits = ("train", "test") if case == "classifier" else ("dev", "test")
    assert {"train/loss", *(f"{split}/{main}" for split in splits)} <= set(fitted)
    assert module.entropy_values().items() <= fitted.items()
    assert set(module.entropy_values()) == ({"tau"} if case == "alpha_relu" else {"q", "r"})
    assert any(not torch.equal(value, before[name]) for name, value in module.network.state_dict().items())

    trainer.validate(module, data, verbose=False)
    validated = measured(trainer)
    assert {name.partition("/")[0] for name in validated} == set(splits)
    assert validated == {name: fitted[name] for name in validated}
    trainer.test(module, data, verbose=False)
    assert measured(trainer) == {name: value for name, value in validated.items() if name.startswith("test/")}

    predicted = trainer.predict(module, data)
    if case == "classifier":
        p = torch.cat(predicted)
        assert p.shape == (359, 10)
        torch.testing.assert_close(p.sum(-1), torch.ones(359))
        right = (p.argmax(-1) == data.data.test.targets).float().mean()
        assert right.item() == pytest.approx(fitted["test/accuracy"])
    else:
        sentences = [sentence for part in predicted for sentence in part]
        assert len(sentences) == 10
        assert all(isinstance(sentence, str) for sentence in sentences)
        order = data.evaluation_order("test").tolist()
        right = sum(sentences[place] == data.data.test.references[number] for place, number in enumerate(order))
        assert right / 10 == pytest.approx(fitted["test/exact_match"])


def test_a_stock_trainer_takes_inputs_and_targets_of_a_stock_loader():
    own, module, trainer = digits(), classifier(), stock_trainer(max_epochs=1)
    trainer.test(module, own, verbose=False)
    expected = measured(trainer)
    examples = TensorDataset(*own.data.test.read(torch.arange(359), torch.zeros(359)))
    loader = DataLoader(examples, batch_size=100)
    trainer.test(module, loader, verbose=False)
    assert measured(trainer) == pytest.approx(expected)
    for inputs in (TensorDataset(examples.tensors[0]), examples.tensors[0]):
        p = torch.cat(trainer.predict(module, DataLoader(inputs, batch_size=100)))
        assert (p.argmax(-1) == examples.tensors[1]).float().mean().item() == pytest.approx(expected["test/accuracy"])
    trainer.fit(module, loader, loader)
    assert {"train/accuracy", "validation/accuracy"} <= set(trainer.callback_metrics)
    with pytest.raises(UserError, match="inputs without targets"):
        trainer.validate(module, DataLoader(examples.tensors[0], batch_size=100), verbose=False)


def plain(metrics):
    return {name: value.item() for name, value in metrics.items()}


def measured(trainer):
    return {name: value for name, value in plain(trainer.callback_metrics).items() if "/" in name}


class Seen(Callback):
    """What a function makes of the module after each batch of training, or at another moment."""

    def __init__(self, look, moment="on_train_batch_end"):
        self.values: list[Any] = []
        setattr(self, moment, lambda trainer, module, *_: self.values.append(look(module)))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("schedule", "share"),
    [
        ({"schedule": "inverse_square_root", "warm_up_steps": 4}, lambda step: min(step / 4, math.sqrt(4 / step))),
        ({"schedule": "cosine", "cosine_steps": 6}, lambda step: math.cos(math.pi * min(step - 1, 6) / 12) ** 2),
    ],
)
def test_the_learning_rates_follow_their_schedule_step_by_step(schedule, share):
    def learning_rates(module):
        return [group["lr"] for group in module.optimizers().param_groups]

    data, rates = copies(), Seen(learning_rates, "on_before_optimizer_step")
    module = translator(
        data, "sharmix_learned", optimizer={"learning_rate": 0.02, "entropy_learning_rate": 0.01} | schedule
    )
    stock_trainer(callbacks=[rates]).fit(module, data)
    assert len(rates.values) == 2 * len(data.train_dataloader()) > 8
    for step, found in enumerate(rates.values, 1):
        assert found == pytest.approx([0.02 * share(step), 0.01 * share(step)], abs=1e-12), f"step {step}"


@pytest.mark.medium
def test_the_average_of_the_parameters_is_what_is_measured():
    data = copies()
    module = translator(data, average_decay=0.3)
    seen = Seen(lambda module: copy.deepcopy(dict(module.network.named_parameters())))
    trainer = stock_trainer(callbacks=[seen])
    trainer.fit(module, data)

    average = {name: value.clone() for name, value in seen.values[0].items()}
    for steps, parameters in enumerate(seen.values[1:], 1):
        decay = max(0.3, 9 / (10 + steps))
        for name, value in parameters.items():
            average[name] = (1 - decay) * average[name] + decay * value
    for name, value in module.evaluated.named_parameters():
        torch.testing.assert_close(value, average[name], msg=name)

    found = measured_with(module.evaluated.state_dict(), data)
    assert found == pytest.approx({name: trainer.callback_metrics[name].item() for name in found})
    assert found["test/loss"] != pytest.approx(measured_with(module.network.state_dict(), data)["test/loss"], rel=1e-4)


def measured_with(network, data):
    """The test metrics of a plain translator with the parameters of a network."""
    module = translator(data)
    module.network.load_state_dict(network)
    trainer = stock_trainer()
    trainer.test(module, data, verbose=False)
    return measured(trainer)
