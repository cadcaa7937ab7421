"""Tiny language models of transformers, trained by a criterion, against the criterion on plain logits."""

import copy
import importlib
from functools import partial

import pytest
import torch
from torch import nn

import sharmix
from tests.sharmix.cases import every_case, for_every

transformers = pytest.importorskip("transformers")
ours = importlib.import_module("sharmix.integrations.transformers")

pytestmark = pytest.mark.medium  # imports transformers: seconds

WORDS = 97
TOKENS = torch.randint(2, WORDS, (3, 9), generator=torch.Generator().manual_seed(0))
LABELS = TOKENS.masked_fill(torch.arange(9) < torch.tensor([[4], [0], [2]]), -100)
SIZES = {
    "vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "hidden_size": 16,
    "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip
MODELS = {
    "llama": partial(transformers.LlamaConfig, num_key_value_heads=2),
    "gpt2, tied": partial(transformers.GPT2Config, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "qwen 3, tied": partial(transformers.Qwen3Config, num_key_value_heads=2, head_dim=4, tie_word_embeddings=True),
    "phi, with a bias": transformers.PhiConfig,
}
CHANGED = {  # logits that are not what the output layer returns
    "soft cap": partial(transformers.Gemma2Config, head_dim=4, num_key_value_heads=2),
    "product": transformers.CohereConfig,
    "quotient": partial(transformers.GraniteConfig, logits_scaling=2.0),
    "copy": partial(transformers.OPTConfig, ffn_dim=16, word_embed_proj_dim=16),
}
CRITERIA = {
    "learned": lambda: sharmix.SharMiXLoss(torch.tensor(1.25), torch.tensor(1.5), learned=True),
    "smoothed": lambda: sharmix.EntmaxLoss(alpha=1.5, label_smoothing=0.1),
}


def model_of(config, train=True, **options):
    """A random model whose logits differ enough to leave words out."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config(**SIZES, **options)).train(train)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8) if parameter.dim() == 2 else parameter.add_(torch.randn_like(parameter) / 8)
    return model


def plain_loss(criterion, outputs, labels, num_items_in_batch=None):
    """The loss as transformers computes its own, of all logits."""
    logits, words = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    mean = criterion(logits, words)
    return mean if num_items_in_batch is None else mean * (words != -100).sum() / num_items_in_batch


def loss_and_gradients(model, criterion, loss, half=None, items=None):
    """Of all parameters, by name; the orders of the criterion are named alike, in the model or not."""
    model.zero_grad()
    criterion.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=half == "autocast"):
        outputs = model(TOKENS)
    value = loss(outputs, LABELS, num_items_in_batch=items)
    value.backward()
    named = [*model.named_parameters(), *criterion.named_parameters()]
    return {"loss": value} | {name: one.grad for name, one in named if "criterion" not in name}


@for_every(config=MODELS, criterion=CRITERIA, items=(None, 7, torch.tensor(7)))
def test_loss_and_all_gradients_are_those_of_plain_logits(config, criterion, items):
    model, criterion = model_of(config), criterion()
    expected = loss_and_gradients(model, criterion, partial(plain_loss, criterion), items=items)
    assert 0 < (criterion.activation(model(TOKENS).logits) == 0).float().mean() < 1
    loss = ours.attach_criterion(model, criterion)
    found = loss_and_gradients(model, criterion, loss, items=items)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)
    assert all(gradient.abs().max() > 0 for name, gradient in found.items() if "k_proj.bias" not in name)


@for_every(config=MODELS, half=("weights", "autocast"))
def test_in_bfloat16_they_are_as_near_as_its_rounding(config, half):
    model, criterion = model_of(config), CRITERIA["learned"]()
    exact = loss_and_gradients(model, criterion, partial(plain_loss, criterion))
    model = model.bfloat16() if half == "weights" else model
    plain = loss_and_gradients(model, criterion, partial(plain_loss, criterion), half)
    found = loss_and_gradients(model, criterion, ours.attach_criterion(model, criterion), half)
    for name, values in found.items():
        assert values.dtype == plain[name].dtype
        error, usual = ((one[name].float() - exact[name]).norm() for one in (found, plain))
        assert error <= 1.5 * usual + 0.01 * exact[name].norm(), name


def test_in_training_there_are_no_logits():
    model = model_of(MODELS["llama"])
    ours.attach_criterion(model, sharmix.EntmaxLoss())
    outputs = model(TOKENS, labels=TOKENS)
    assert outputs.logits.shape == (*TOKENS.shape, WORDS)
    assert outputs.logits.isnan().all()
    assert outputs.logits.untyped_storage().nbytes() == 4
    with pytest.raises(RuntimeError, match="no logits in training after attach_criterion"):
        outputs.loss.backward()


@for_every(config=MODELS, train=(False, True))
def test_evaluation_and_generation_are_as_before(config, train):
    model, criterion = model_of(config, train), CRITERIA["learned"]()
    generate = partial(model.generate, TOKENS, attention_mask=torch.ones_like(TOKENS), max_new_tokens=5)
    with torch.no_grad():
        before, generated = model(TOKENS), generate(do_sample=False)
        loss = ours.attach_criterion(model, criterion)
        after = model(TOKENS)
        assert torch.equal(after.logits, before.logits)
        assert torch.equal(generate(do_sample=False), generated)
        torch.testing.assert_close(loss(after, LABELS), plain_loss(criterion, before, LABELS))


def test_in_evaluation_a_loss_can_have_gradients():
    model = model_of(CHANGED["soft cap"], train=False)
    criterion = CRITERIA["learned"]()
    expected = loss_and_gradients(model, criterion, partial(plain_loss, criterion))
    found = loss_and_gradients(model, criterion, ours.attach_criterion(model, criterion))
    torch.testing.assert_close(found, expected)


def test_refusals():
    criterion, llama = sharmix.EntmaxLoss(), model_of(MODELS["llama"])
    bert = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES))
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=24, d_model=8, d_kv=4, num_heads=2))
    other = model_of(MODELS["llama"])
    other.lm_head = nn.Sequential(other.lm_head)
    another = ours.attach_criterion(model_of(MODELS["llama"]), criterion)
    attached = model_of(MODELS["llama"])
    attach, loss = ours.attach_criterion, ours.attach_criterion(attached, criterion)
    copied = copy.deepcopy(attached)
    refused = {
        "BertForMaskedLM is not a causal language model": lambda: attach(bert, criterion),
        "T5ForConditionalGeneration is not a causal": lambda: attach(t5, criterion),
        "must be a torch.nn.Linear, got <class .*Sequential": lambda: attach(other, criterion),
        "must be a FenchelYoungLoss, got CrossEntropyLoss": lambda: attach(llama, nn.CrossEntropyLoss()),
        "no class weights": lambda: attach(llama, sharmix.EntmaxLoss(weight=torch.ones(WORDS))),
        "reduction 'mean'": lambda: attach(llama, sharmix.EntmaxLoss(reduction="sum")),
        "batch has no labels": lambda: loss(llama(TOKENS), None),
        "it needs the model that is trained": lambda: another(llama(TOKENS), LABELS),
        "the outputs are of a copy of the model": lambda: loss(copied(TOKENS), LABELS),
    }
    with every_case() as case:
        for message, call in refused.items():
            with case(message=message), pytest.raises((ValueError, TypeError), match=message):
                call()
        for name, config in CHANGED.items():
            model = model_of(config)
            loss = attach(model, criterion)
            with case(changed=name), pytest.raises(ValueError, match="do not hold what the output layer returned"):
                loss(model(TOKENS), LABELS)


def trained(folder, attach, **options):
    """transformers' Trainer after two steps, and all parameters, the orders too."""
    model, criterion = model_of(MODELS["qwen 3, tied"]), CRITERIA["learned"]()
    rows = [{"input_ids": tokens, "labels": labels} for tokens, labels in zip(TOKENS, LABELS, strict=True)]
    arguments = transformers.TrainingArguments(
        folder, max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=0.1,
        optim="sgd", save_steps=1, use_cpu=True, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    loss = attach(model, criterion)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows * 3, eval_dataset=rows, compute_loss_func=loss)
    trainer.train(**options)
    parameters = [*model.named_parameters(), *criterion.named_parameters()]
    return trainer, {name: one.detach() for name, one in parameters if "criterion" not in name}


def plainly(model, criterion):
    model.criterion = criterion
    return partial(plain_loss, criterion)


@pytest.mark.filterwarnings("default")  # a Trainer advises those who train on a CPU
def test_in_the_trainer(tmp_path):
    _, plain = trained(tmp_path / "plain", plainly)
    trainer, found = trained(tmp_path / "ours", ours.attach_criterion)
    torch.testing.assert_close(found, plain)
    assert found["activation.q"] > 1.251
    assert found["activation.r"] > 1.501

    loss = trainer.evaluate()["eval_loss"]
    with torch.no_grad():
        expected = plain_loss(trainer.model.lm_head.criterion, trainer.model(TOKENS), LABELS)
    assert loss == pytest.approx(expected.item())

    first = str(tmp_path / "ours" / "checkpoint-1")
    _, resumed = trained(tmp_path / "resumed", ours.attach_criterion, resume_from_checkpoint=first)
    torch.testing.assert_close(resumed, found, rtol=0, atol=0)
