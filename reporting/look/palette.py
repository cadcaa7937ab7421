"""The look of an activation in every table and figure, its label, colour and marker; and the style of every page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Look(NamedTuple):
    """Look of an activation. No two have the same colour or the same marker, so either is enough to tell them apart."""

    label: str
    colour: str
    marker: str


# The eight colours of Okabe and Ito (Color Universal Design, 2008), safe for colour-blind readers, and the wine of
# Paul Tol's muted colours, which is further from each of them than some of them are from each other.
LOOKS = {
    "softmax": Look("softmax", "#000000", "o"),
    "sparsemax": Look("sparsemax", "#E69F00", "s"),
    "entmax": Look("entmax", "#56B4E9", "^"),
    "entmax_learned": Look("entmax learned", "#0072B2", "v"),
    "normmax": Look("α-normmax", "#882255", ">"),
    "alpha_relu": Look("α-ReLU", "#CC79A7", "P"),
    "sharmix_fixed": Look("SharMiX fixed", "#009E73", "D"),
    "sharmix_learned": Look("SharMiX learned", "#D55E00", "X"),
    "entmax_package": Look("entmax (package)", "#F0E442", "*"),
}
# SharMiX with orders learned by an objective that is not the paper's: two more of Paul Tol's muted colours.
VARIANTS = {
    ("sharmix_learned", "brier"): Look("SharMiX learned", "#332288", "p"),
    ("sharmix_learned", "log"): Look("SharMiX learned", "#999933", "d"),
}
# The kinds of attention in a Transformer, whose colours belong to no activation: Paul Tol's bright ones.
ATTENTION = {
    "encoder self": Look("encoder, self-attention", "#4477AA", "o"),
    "decoder self": Look("decoder, self-attention", "#228833", "s"),
    "decoder cross": Look("decoder, cross-attention", "#AA3377", "^"),
}
# Training sets of different class frequencies, in Paul Tol's bright colours like the attentions; each has its own line.
TRAINING_SETS = {
    "balanced": {"color": "#4477AA", "linestyle": "-", "marker": ""},
    "control": {"color": "#228833", "linestyle": "--", "marker": ""},
    "long-tailed": {"color": "#AA3377", "linestyle": "-.", "marker": ""},
    "long-tailed, no resampling": {"color": "#CCBB44", "linestyle": ":", "marker": ""},
}
# Tol's purple, and lighter hues of five; the other colours can be seen on both grounds.
ON_DARK = {
    "#000000": "#FFFFFF",
    "#882255": "#AA4499",
    "#332288": "#9C8FE0",
    "#4477AA": "#6FA8DC",
    "#228833": "#55B868",
    "#AA3377": "#DD6FAE",
}
# Configurations of one activation share its colour and marker; lines and the filling of markers tell them apart.
LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 3)), (0, (3, 1, 1, 1)), (0, (8, 3)), (0, (8, 2, 1, 2, 1, 2)))
FILL_STYLES = ("full", "left", "right", "bottom", "top")
PARAMETERS = {"alpha": "α = {:g}", "tau": "τ = {:g}", "temperature": "T = {:g}", "objective": "{}"}
DEFAULTS = {"temperature": 1.0, "objective": "fenchel_young"}  # the paper's values; labels omit them
AUGMENTATION = {"standard": "standard augmentation"}  # the paper has none
# The objectives that learned entropy parameters minimise: their names, and the line style of their paths.
OBJECTIVES = {"fenchel_young": ("Fenchel–Young", "-"), "brier": ("Brier score", "--"), "log": ("log score", "-.")}


def look(name: str) -> Look:
    """Look of the activation `name`: grey, labelled by its own name, if it is a third party's."""
    return LOOKS.get(name, Look(name.rpartition(".")[2], "#999999", "h"))


def look_of(activation: Mapping[str, Any]) -> Look:
    """Look of a configured activation: a learned SharMiX has one for each objective."""
    return VARIANTS.get((activation["name"], str(activation.get("objective"))), look(activation["name"]))


def on_dark(colour: str) -> str:
    """The colour that replaces a colour of `LOOKS` on a dark background, where black, wine and indigo are invisible."""
    return ON_DARK.get(colour, colour)


def page_style() -> str:
    """The style sheet that pages share: look.css, and the activations' colours as variables such as --softmax."""
    colours = (f"--{name}: light-dark({own.colour}, {on_dark(own.colour)});" for name, own in LOOKS.items())
    return f":root {{ {' '.join(colours)} }}\n{Path(__file__).with_name('look.css').read_text('utf-8')}"


def order(activation: Mapping[str, Any]) -> tuple[float, ...]:
    """Sorts configured activations as every list shows them: as `LOOKS`, by q, by r, and by the orders' objective.

    Third parties' activations come last.
    """
    names, objectives = list(LOOKS), list(OBJECTIVES)
    name, objective = activation["name"], activation.get("objective") or objectives[0]
    return (
        names.index(name) if name in names else len(names),
        activation.get("q") or 0.0,
        activation.get("r") or 0.0,
        objectives.index(objective) if objective in objectives else len(objectives),
    )


def label(activation: Mapping[str, Any], data: Mapping[str, Any] | None = None) -> str:
    """Label of a configured activation, such as "SharMiX learned (1.25, 1.50)".

    It has the activation's own label, then (q, r), then the other parameters of `activation`, the `config.activation`
    of a record, that are set and differ from the paper's. With `data`, the `config.data`, it has the augmentation.
    """
    parts = [f"{activation[key]:.2f}" for key in ("q", "r") if activation.get(key) is not None]
    parts += [
        text.format(activation[key])
        for key, text in PARAMETERS.items()
        if activation.get(key) not in (None, DEFAULTS.get(key))
    ]
    parts += [f"{key} = {value}" for key, value in (activation.get("parameters") or {}).items()]
    augmentation = (data or {}).get("augmentation")
    parts += [text for name, text in AUGMENTATION.items() if name == augmentation]
    name = look(activation["name"]).label
    return f"{name} ({', '.join(parts)})" if parts else name
