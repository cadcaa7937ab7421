"""How activations look and what they are called."""

from matplotlib import rc_params_from_file

import sharmix
from experiments.identity import ROOT
from reporting.look.palette import LOOKS, label, look, look_of, order


def test_every_registered_activation_has_a_look():
    assert set(LOOKS) == set(sharmix.available_activations())


def test_figures_of_the_tutorials_have_the_colours_of_the_project():
    settings = rc_params_from_file(ROOT / "docs" / "tutorials" / "matplotlibrc", use_default_template=False)
    names = ("softmax", "sharmix_fixed", "sharmix_learned", "entmax", "sparsemax")
    assert settings["axes.prop_cycle"].by_key()["color"] == [LOOKS[name].colour for name in names]


def test_labels_say_what_was_configured():
    start = {"q": 1.25, "r": 1.5}
    cases = [
        ({"name": "softmax"}, "softmax"),
        ({"name": "sharmix_learned", **start}, "SharMiX learned (1.25, 1.50)"),
        ({"name": "alpha_relu", "alpha": 1.5, "tau": 0.3}, "α-ReLU (α = 1.5, τ = 0.3)"),
        ({"name": "sharmix_learned", **start, "objective": "brier"}, "SharMiX learned (1.25, 1.50, brier)"),
        ({"name": "sharmix_fixed", **start, "temperature": 1.0}, "SharMiX fixed (1.25, 1.50)"),
        ({"name": "sharmix_fixed", **start, "temperature": 0.5}, "SharMiX fixed (1.25, 1.50, T = 0.5)"),
        ({"name": "theirs.Own", "parameters": {"width": 2}}, "Own (width = 2)"),
    ]
    assert [label(activation) for activation, _ in cases] == [text for _, text in cases]
    assert label({"name": "softmax"}, {"augmentation": "standard"}) == "softmax (standard augmentation)"
    assert all(text.startswith(look(activation["name"]).label) for activation, text in cases)


def test_learned_variants_differ_in_colour_and_in_marker():
    start = {"name": "sharmix_learned", "q": 1.25, "r": 1.5}
    looks = [look_of(start | {"objective": name}) for name in ("fenchel_young", "brier", "log")]
    looks += [own for name, own in LOOKS.items() if name != "sharmix_learned"]
    assert looks[0] == look("sharmix_learned")
    assert len({own.colour for own in looks}) == len({own.marker for own in looks}) == len(looks)
    assert look_of({"name": "entmax_learned", "objective": "brier"}) == look("entmax_learned")


def test_lists_have_one_order_by_activation_then_orders_then_objective():
    learned = [
        {"name": "sharmix_learned", "q": q, "r": r, "objective": objective}
        for q, r in ((1.25, 1.5), (1.25, 1.75), (1.5, 1.25))
        for objective in ("fenchel_young", "brier", "log")
    ]
    shown = [{"name": name} for name in LOOKS if name != "entmax_package"][:-1] + learned
    shown += [{"name": "entmax_package"}, {"name": "theirs.Own"}]
    backwards = shown[::-1]
    assert sorted(backwards, key=order) == shown
