"""How few keys trained heads use, and what attention in blocks gains by it: the encoder's attention of finished runs.

python -m benchmarks.trained_heads outputs/copy/softmax-0123456789ab/seed-21 [FOLDER ...]
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from tqdm import tqdm

import sharmix
from benchmarks.harness import Row, command_line, spread
from benchmarks.publication import origin, publish, with_ranges
from experiments.data.special_tokens import PADDING
from experiments.networks.attention import Attention
from experiments.run import load_run
from reporting.text.markdown import paragraph
from sharmix._attention import attend

_ABOUT = (
    "Of the encoder's heads after `python run.py experiment=RUN attention=ATTENTION seed=SEED`: the share of the keys "
    "that have a weight for a query, and that have one "
    "for some query of a block. *Sentences*: {sentences} of test, as in training; each is one block. *Text*: "
    "{tokens:,} tokens of these sentences one after another, much longer than in training, in blocks of {rows} "
    "queries. Shares are medians of the heads, with the lowest and the highest. Times are of the text, forward and "
    "backward, relative to torch's fused softmax attention of the same queries, keys and values: ours as "
    "`sharmix.attention` computes it, and with all scores in memory."
)


class Given(dict[int, tuple[Tensor, Tensor, Tensor, Tensor]]):
    """By layer: queries, keys and values, [n, heads, length, width], and which keys there are, [n, 1, 1, length]."""

    def keep(self, layer: int) -> Callable[..., None]:
        def hook(attention: Attention, inputs: tuple[Any, ...]) -> None:
            states, (keys, values), allowed = inputs
            self[layer] = (attention._by_head(attention.query(states)), keys, values, allowed)

        return hook


@torch.no_grad()
def given_to(attentions: Sequence[Attention], encode: Callable[[Tensor], Any], tokens: Tensor) -> Given:
    """What each attention gets when the encoder reads tokens [n, length]."""
    given = Given()
    hooks = [one.register_forward_pre_hook(given.keep(layer)) for layer, one in enumerate(attentions)]
    encode(tokens)
    for hook in hooks:
        hook.remove()
    return given


@torch.no_grad()
def shares(activation: Callable[[Tensor], Tensor], given: tuple[Tensor, ...], rows: int) -> tuple[Tensor, Tensor]:
    """By head: the shares of the keys with a weight for a query, and for some query of a block of so many rows."""
    query, key, _, allowed = given
    scores = query @ key.mT * query.shape[-1] ** -0.5
    real = allowed.mT & allowed  # queries that are no padding
    used = (activation(scores.masked_fill(~allowed, -torch.inf)) > 0) & real
    of_query = used.sum((0, 2, 3)) / real.sum()
    blocks = used.split(rows, 2)
    in_block = sum(block.any(2).sum((0, 2)) for block in blocks)
    seen = sum((block.any(2) & allowed[:, :, 0]).sum() for block in real.split(rows, 2))
    return of_query, in_block / seen


def seconds(attention: Callable[..., Tensor], leaves: Sequence[Tensor]) -> float:
    """Of one call, forward and backward."""
    start = time.perf_counter()
    output = attention(*leaves)
    torch.autograd.grad(output, leaves, torch.ones_like(output))
    return time.perf_counter() - start


def times(activation: sharmix.Activation, given: tuple[Tensor, ...], calls: int) -> Row:
    """The time of ours relative to torch's softmax attention."""
    leaves = [one.detach().requires_grad_() for one in given[:3]]
    contenders = {
        "softmax": scaled_dot_product_attention,
        "ratio": lambda *inputs: sharmix.attention(*inputs, activation),
        "ratio_whole": lambda *inputs: attend(*inputs, activation, need_weights=True)[0],
    }
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(1 + calls):
        for name, attention in contenders.items():
            found[name].append(seconds(attention, leaves))
    fastest = {name: min(of[1:]) for name, of in found.items()}
    return {name: fastest[name] / fastest["softmax"] for name in ("ratio", "ratio_whole")}


def measure(folders: Sequence[str], settings: Mapping[str, Any]) -> Iterator[Row]:
    """Two rows for each run and layer: of sentences, and of one text."""
    torch.set_num_threads(1)
    for folder in tqdm(folders, "runs"):
        module, data = load_run(folder)
        model: Any = module.evaluated
        attentions = [layer.self_attention for layer in model.encoder]
        sentences, _ = data.data.test.read(torch.arange(settings["sentences"]), torch.arange(settings["sentences"]))
        words = sentences[sentences != PADDING]
        text = words.repeat(settings["tokens"] // len(words) + 1)[None, : settings["tokens"]]
        for kind, tokens in (("sentences", sentences), ("text", text)):
            for layer, given in given_to(attentions, model.encode, tokens).items():
                activation = attentions[layer].activation
                rows = settings["rows"] if kind == "text" else tokens.shape[1]
                row: Row = {"experiment": Path(folder).parts[-3], "attention": type(activation).__name__, "text": kind}
                row |= {"layer": layer + 1, "seed": int(Path(folder).name.removeprefix("seed-"))}
                for name, share in zip(("query", "block"), shares(activation, given, rows), strict=True):
                    row |= spread(share.tolist(), name)
                yield row | (times(activation, given, settings["calls"]) if kind == "text" else {})


def page(data: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    names = {"experiment": "run", "attention": "attention", "seed": "seed", "text": "of", "layer": "layer"}
    shown = data[[*names]].rename(columns=names)
    shown["keys of a query"], shown["keys of a block"] = with_ranges(data, "query"), with_ranges(data, "block")
    for title, column in (("time", "ratio"), ("time, all scores", "ratio_whole")):
        shown[title] = data[column].map("{:.2f}".format, na_action="ignore").fillna("–")
    about = paragraph(f"{_ABOUT.format(**settings)} {origin(data, 'make trained_heads RUNS=FOLDERS')}")
    return f"# Keys that trained heads use\n\n{about}\n\n{shown.to_markdown(index=False, disable_numparse=True)}\n"


def main() -> None:
    """Command line: measure, write the CSV, and make its page."""
    parser = command_line("trained_heads", __doc__)
    parser.add_argument("runs", nargs="+", metavar="FOLDER", help="a finished run of a translation model")
    options = parser.parse_args()
    rows = measure(options.runs, options.settings)
    publish("trained_heads", rows, options.folder / "trained_heads.csv", lambda data: page(data, options.settings))


if __name__ == "__main__":
    main()
