"""The runs that a page carries."""

import json

from reporting.palette import LOOKS, VARIANTS
from reporting.report import page as page_module
from reporting.report.page import report_of_outputs
from tests.reporting.report.outputs import payload_of, put_record
from tests.reporting.synthetic_records import make_record
from tests.reporting.synthetic_results import RESULTS


def test_every_run_stands_in_the_page_with_every_number_of_its_record(page, own_runs):
    runs = payload_of(page)["runs"]
    experiments = {table.experiment for table in own_runs.declaration.tables.values()}
    lines = [
        line for name in experiments for line in (RESULTS / f"records/{name}.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(runs) == len(lines)
    for line in lines:
        record = json.loads(line)
        run = runs[f"{record['experiment']}/{record['run_id']}/seed-{record['seed']}"]
        columns = {column for row in record["curves"] for column in row}
        assert run["curves"] == {name: [row.get(name) for row in record["curves"]] for name in columns}
        for key in ("config", "metrics", "environment", "data", "wall_time_seconds", "finished_at", "run_id"):
            assert run[key] == record[key], key
        assert run["code"]["commit"] == record["code"]["commit"]
        assert run["code"]["digest"] == record["code"]["digest"]


def test_a_run_without_a_record_stands_there_with_its_curves_so_far(page_at_work):
    payload = payload_of(page_at_work)
    run = payload["runs"]["digits/0123456789ab/seed-1"]
    assert run["state"] == "stopped"
    assert run["curves"]["epoch"] == [1, 2]
    assert run["curves"]["test/accuracy"][-1] == 0.8
    assert payload["groups"]["digits/0123456789ab"]["label"] == "softmax [01234567]"
    assert "digits/0123456789ab" in payload["experiments"]["digits"]["groups"]


def test_seeds_of_one_configuration_look_the_same_and_configurations_of_one_activation_share_its_colour(page):
    groups = payload_of(page)["groups"].values()
    fixed = [group for group in groups if group["activation"] == "sharmix_fixed" and "airline" in group["runs"][0]]
    assert len(fixed) == 9
    assert len({tuple(group["colour"]) for group in fixed}) == 1
    assert len({group["dash"] for group in fixed}) == 9
    assert all(len(group["runs"]) == 5 for group in fixed)


def test_looks_that_differ_in_figures_differ_in_the_page(page):
    markers = {look.marker for look in (*LOOKS.values(), *VARIANTS.values())}
    symbols = {name: group["symbol"] for name, group in payload_of(page)["groups"].items()}
    shown = {symbol for name, symbol in symbols.items() if name.startswith(("cifar100/", "copy/"))}
    assert len(shown) == len(markers)


def test_attention_tells_translations_apart_rather_than_a_hash(page):
    labels = [group["label"] for group in payload_of(page)["groups"].values() if "attention" in group["label"]]
    assert {*labels} == {f"softmax, attention {name}" for name in ("softmax", "entmax learned", "SharMiX learned")}


def test_colours_that_cannot_be_seen_on_a_dark_ground_are_replaced_there(page):
    (softmax,) = [group for group in payload_of(page)["groups"].values() if group["label"] == "softmax"][:1]
    assert softmax["colour"] == ["#000000", "#FFFFFF"]


def test_a_page_of_many_epochs_stays_small_by_leaving_epochs_out(tmp_path, monkeypatch):
    put_record(tmp_path / "outputs", make_record(experiment="digits", epochs=1003))
    whole = report_of_outputs(tmp_path / "outputs", tmp_path / "whole.html").stat().st_size
    room = 8_000  # the runs need more
    monkeypatch.setattr(page_module, "LARGEST", room + len(page_module._plotly()) + page_module._REST)
    page = report_of_outputs(tmp_path / "outputs", tmp_path / "thinned.html")
    (run,) = payload_of(page)["runs"].values()
    assert page.stat().st_size < whole
    assert run["curves"]["epoch"][0] > 1
    assert run["curves"]["epoch"][-1] == run["epoch"] == 1003
    assert "so that the page stays small" in page.read_text("utf-8")
