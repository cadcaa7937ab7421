"""A recorded run is repeated from its record alone."""

import shutil
from pathlib import Path

import pytest

from experiments.composition import settings_of as settings
from experiments.composition import settings_of_record
from experiments.errors import UserError
from experiments.identity import ROOT, run_id
from experiments.record import load_record, read_record
from experiments.repeat import find_record, main
from experiments.run import Run

QUICK = ("experiment=digits", "activation=sharmix_learned", "trainer.max_epochs=1", "progress=none")
KEPT = ROOT / "results" / "records"


@pytest.mark.medium
def test_a_run_is_repeated_to_the_bit_beside_the_recorded_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Settings of one's own, which no experiment in conf/ has.
    record = Run(settings(*QUICK, "name=mine", "model.hidden_units=4", "seed=7"), Path("one")).complete()
    assert record is not None
    capsys.readouterr()
    main(["one/record.json", "progress=none"])
    again = load_record(Path(f"outputs/repeated/mine/sharmix_learned-{record.run_id}/seed-7/record.json"))
    assert again.weights_hash == record.weights_hash
    said = capsys.readouterr().out
    assert said.endswith("the weights are those of the record, to the bit\n")
    assert "other code" not in said

    other = record.model_copy(update={"code": record.code.model_copy(update={"digest": "0"}), "weights_hash": "0"})
    (tmp_path / "one" / "record.json").write_text(other.to_json())
    shutil.rmtree("outputs")
    with pytest.raises(UserError, match=r"^the weights are not those of the record$"):
        main(["one/record.json", "progress=none", "paths.outputs=there"])
    assert [*Path("there").glob("mine/*/seed-7/record.json")]
    assert capsys.readouterr().out.startswith("other code made the record (commit ")


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=[] if file.stem in ("copy", "tiny_imagenet_subset") else [pytest.mark.medium])
        for file in sorted(KEPT.glob("*.jsonl"))
    ],
    ids=lambda file: file.stem,
)
def test_a_kept_record_gives_the_settings_of_its_run(file):
    records = [read_record(line, str(file)) for line in file.read_text("utf-8").split("\n") if line]
    assert find_record(file, records[0].run_id, str(records[0].seed)) == records[0]
    for record in {one.run_id: one for one in records}.values():
        for given, folder in (({"paths.data": "mine"}, "mine"), ({}, None)):
            found = settings_of_record(record, given)
            assert (run_id(found.model_dump()), found.seed) == (record.run_id, record.seed)
            assert found.data.get("folder", folder) == folder  # where the data set has one


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((f"{KEPT}/copy.jsonl",), r"9 of its 9 records match; give run_id=ID and seed=NUMBER of one record"),
        ((f"{KEPT}/copy.jsonl", "seed=1"), "0 of its 9 records match"),
        (("none.json",), r"none\.json: cannot be read .*; name the record of a run"),
        ((f"{KEPT}/tiny_imagenet_balanced.jsonl", "threads=2"), "threads=2 is not allowed here; you can give .* paths"),
    ],
)
def test_what_cannot_be_repeated_is_one_message(words, said):
    with pytest.raises(UserError, match=said):
        main(words)
