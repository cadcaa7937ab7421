"""A run in this process: what it leaves, how it goes on after a kill, and that `force` loses no finished run."""

import csv
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as L
import psutil
import pytest
from lightning.pytorch.callbacks import Callback

from experiments import building, load_run, run
from experiments.composition import settings_of as settings
from experiments.errors import ConfigurationError, DataError, UserError
from experiments.modules.classifier import Classifier
from experiments.record import by_split, load_record
from experiments.run import Run, learned_orders, weights_hash
from experiments.run_folder import locked, replaced
from tests.end_to_end.runner import untimed
from tests.experiments.building import Kept, classifier, stock_trainer
from tests.experiments.data.generated import tweets, write_tweets

pytestmark = pytest.mark.medium
HERE = "tests.experiments.test_run"
QUICK = (
    *("experiment=digits", "model.hidden_units=4", "progress=none", "checkpoint_seconds=0", "trainer.max_epochs=2"),
    f"+callbacks.fails._target_={HERE}.Fails",
)
RESULTS = {"record.json", "metrics.csv", "weights.ckpt"}


def complete(folder, *overrides):
    airline = "experiment=airline" in overrides
    quick = [override for override in QUICK if not (airline and override.startswith(("experiment", "model")))]
    return Run(settings(*quick, *overrides), folder).complete()


class Fails(Callback):
    """Ends a training by an error at the start of an epoch or at the end, where `at` says."""

    at: ClassVar[str | None] = None

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.at == f"epoch {trainer.current_epoch + 1}":
            raise RuntimeError("killed")

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.at == "end":
            raise RuntimeError("killed")


@pytest.fixture(autouse=True)
def nothing_kept():
    Kept.values.clear()
    Kept.statuses.clear()
    yield
    Fails.at = None


def killed(folder, at, *overrides):
    """The checkpoint of a training that ended by an error."""
    Kept.values.clear()
    Fails.at = at
    with pytest.raises(RuntimeError, match="killed"):
        complete(folder, *overrides)
    Fails.at = None
    Kept.values.clear()
    assert not (folder / "record.json").exists()
    (last,) = folder.glob("last-*.ckpt") if at != "epoch 1" else [folder]
    return last


def test_a_logger_is_given_the_same_live_resumed_and_replayed(tmp_path):
    kept = f"+logger.kept._target_={Kept.__module__}.Kept"
    record = complete(tmp_path / "whole", kept)
    live = dict(Kept.values)
    steps = [row["steps"] - 1 for row in record.curves]  # Lightning counts from 0
    assert [live["epoch", step] for step in steps] == [0, 1]
    assert [live["test/accuracy", step] for step in steps] == [row["test/accuracy"] for row in record.curves]
    assert {name for name, _ in live} == set(record.curves[0]) - {"steps"}
    assert set(Kept.statuses) == {"success"}

    Kept.values.clear()
    assert complete(tmp_path / "whole", kept) == record
    assert Kept.values == live

    (tmp_path / "whole" / "wandb").mkdir()  # W&B has the run already, and would make a second one
    Kept.values.clear()
    complete(tmp_path / "whole", kept.replace("kept", "wandb"))
    assert not Kept.values

    killed(tmp_path / "killed", "epoch 2", kept)
    assert Kept.statuses[-1] == "failed"
    complete(tmp_path / "killed", kept)
    assert Kept.values.keys() == live.keys()
    for name, step in live:
        if name not in ("training_seconds", "examples_per_second"):
            assert Kept.values[name, step] == live[name, step], name


def test_record_and_weights_are_of_the_selected_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(Classifier, "selected_by", "train/loss")  # whose largest is the first epoch's
    record = complete(tmp_path / "run", "keep_weights=true")
    assert record.epoch == 1
    assert record.metrics == by_split(record.curves[0]) != by_split(record.curves[-1])
    module, data = load_run(tmp_path / "run")
    stock_trainer().test(module, data, verbose=False)
    assert module.trainer.callback_metrics["test/loss"].item() == record.curves[0]["test/loss"]


def test_the_speed_is_that_of_one_epoch_and_the_time_that_of_all_processes(tmp_path):
    killed(tmp_path / "run", "end")
    record = complete(tmp_path / "run")
    assert record.wall_time_seconds > record.curves[-1]["training_seconds"]
    before = 0
    for row in record.curves:
        seconds, before = row["training_seconds"] - before, row["training_seconds"]
        assert row["examples_per_second"] * seconds == pytest.approx(record.data["train_size"])


@pytest.mark.parametrize("ending", [("trainer.max_epochs=1",), ("+callbacks.early_stopping.stopping_threshold=99",)])
def test_a_run_killed_before_its_record_trains_no_further_epoch(ending, tmp_path):
    stopping = ("callbacks=early_stopping", "data.validation_fraction=0.2", *ending)
    whole = complete(tmp_path / "whole", *stopping)
    killed(tmp_path / "killed", "end", *stopping)
    resumed = complete(tmp_path / "killed", *stopping)
    assert [row["epoch"] for row in resumed.curves] == [row["epoch"] for row in whole.curves] == [1]
    assert resumed.weights_hash == whole.weights_hash
    assert resumed.metrics == whole.metrics


def test_a_killed_run_does_not_go_on_over_other_data_or_with_other_settings(tmp_path, capsys):
    write_tweets(tmp_path, tweets())
    airline = ("experiment=airline", f"paths.data={tmp_path}", "data.expected_examples=null")
    checkpoint = killed(tmp_path / "killed", "epoch 2", *airline)
    assert "starts again" not in capsys.readouterr().out
    write_tweets(tmp_path, [[*row[:3], " ".join(row[3].split()[::-1])] for row in tweets()])
    building._loaded.clear()
    for changed in ((), ("seed=42",), ("optimizer.learning_rate=0.01",)):
        Fails.at = "epoch 2"
        with pytest.raises(RuntimeError, match="killed"):
            complete(tmp_path / "killed", *airline, *changed)
        said = " · starts again, because code, data or settings have changed since its checkpoint · "
        assert said in capsys.readouterr().out, changed
    Fails.at = None
    assert checkpoint.exists()  # so that it goes on if the data come back
    resumed = complete(tmp_path / "killed", *airline)
    assert " · goes on from epoch 2 · " in capsys.readouterr().out
    assert resumed.weights_hash == complete(tmp_path / "whole", *airline).weights_hash
    assert {path.name for path in (tmp_path / "killed").iterdir()} == RESULTS


def test_a_killed_run_does_not_go_on_with_other_code(tmp_path, monkeypatch, capsys):
    killed(tmp_path / "killed", "epoch 2")
    own = run.code_of
    monkeypatch.setattr(run, "code_of", lambda config: own(config) | {"digest": "other"})
    complete(tmp_path / "killed")
    assert " · starts again, because code, data or settings have changed since " in capsys.readouterr().out


def test_a_callback_that_watches_what_is_not_logged_ends_the_run_with_one_message(tmp_path):
    with pytest.raises(ConfigurationError, match=r"callbacks: .*`val_loss`.*`train/loss`"):
        complete(tmp_path / "run", "callbacks=early_stopping", "callbacks.early_stopping.monitor=val_loss")


def test_a_finished_run_on_other_data_is_not_taken_for_this_one(before):
    with pytest.raises(ConfigurationError, match=r"expected_examples=\{.*\}, this one None: other data"):
        complete(before, "seed=1", "data.expected_examples=null")


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("before") / "softmax" / "seed-1"
    complete(folder, "seed=1", "logger=tensorboard")
    return folder


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def consistent_record(folder):
    """The record, after a look at the curves and weights that stand beside it."""
    record = load_record(folder / "record.json")
    with (folder / "metrics.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert rows == record.curves
    module, _ = load_run(folder)
    assert weights_hash(module) == record.weights_hash
    return record


def test_a_kill_at_any_moment_of_a_forced_run_leaves_one_finished_run(before, tmp_path, monkeypatch):
    folder, kills = tmp_path / "softmax" / "seed-1", tmp_path / "kills"
    shutil.copytree(before, folder)
    kills.mkdir()
    copying = False

    def before_each(call):
        def call_after_copy(*arguments, **keywords):
            """Keeps what a kill right before the call leaves."""
            nonlocal copying
            if not copying:
                copying = True
                shutil.copytree(folder.parent, kills / f"{len([*kills.iterdir()]):03}")
                copying = False
            return call(*arguments, **keywords)

        return call_after_copy

    for name in ("replace", "rename", "unlink", "rmdir", "fsync"):
        monkeypatch.setattr(os, name, before_each(getattr(os, name)))
    new = complete(folder, "seed=2", "force=true", "logger=tensorboard")
    monkeypatch.undo()
    assert consistent_record(folder) == new
    assert {path.name for path in folder.iterdir()} == RESULTS | {"tensorboard"}

    seeds = []
    for kill in sorted(kills.iterdir()):
        left, aside = kill / "seed-1", kill / ".seed-1.replaced"
        seed = load_record((left if (left / "record.json").exists() else aside) / "record.json").seed
        assert complete(left, f"seed={seed}").seed == seed
        seeds.append(consistent_record(left).seed)
        assert {path.name for path in left.iterdir()} == RESULTS | {"tensorboard"}
        assert [*kill.iterdir()] == [left]
    assert len(seeds) > 10
    assert set(seeds) == {1, 2}
    assert seeds == sorted(seeds)


def test_a_forced_run_that_does_not_finish_leaves_the_finished_one(before, tmp_path):
    folder = tmp_path / "seed-1"
    shutil.copytree(before, folder)
    there = contents(folder)
    for wrong in ("trainer.max_epochs=3", f"+callbacks.wrong._target_={HERE}.Missing", "data.test_fraction=0.0001"):
        Fails.at = "epoch 2"
        with pytest.raises((RuntimeError, UserError)):
            complete(folder, "force=true", "logger=tensorboard", wrong)
        assert contents(folder) == there, wrong
        assert [*tmp_path.iterdir()] == [folder], wrong
    Fails.at = None
    complete(folder, "force=true", "trainer.fast_dev_run=true")  # tries one batch
    assert contents(folder) == there


def test_weights_of_any_precision_have_a_hash():
    single, half = classifier(), classifier().bfloat16()
    assert weights_hash(single) != weights_hash(half) == weights_hash(classifier().bfloat16())


def test_a_forced_run_keeps_the_files_of_others(tmp_path):
    folder = tmp_path / "seed-1"
    for name in ("record.json", "weights.ckpt", "notes/mine.txt", "wandb/offline-run-1/data", "tensorboard/old"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("old")
    with replaced(folder):
        for name in ("record.json", "wandb/offline-run-2/data", "tensorboard/new"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("new")
    kept = {"notes/mine.txt": b"old", "wandb/offline-run-1/data": b"old", "wandb/offline-run-2/data": b"new"}
    assert contents(folder) == {Path(name): text for name, text in kept.items()} | {
        Path("record.json"): b"new",
        Path("tensorboard/new"): b"new",
    }
    assert [*tmp_path.iterdir()] == [folder]


def test_a_forced_run_that_was_killed_goes_on(before, tmp_path, capsys):
    whole = complete(tmp_path / "whole")
    for finished in (False, True):  # which the forced run replaces
        folder = tmp_path / f"{finished}"
        killed(folder, "epoch 2", "force=true")
        (folder / ".record.json-1.unfinished").touch()  # of a killed process
        if finished:
            shutil.copytree(before, folder.with_name(f".{folder.name}.replaced"))
        record = complete(folder, "force=true")
        assert " · goes on from epoch 2 · " in capsys.readouterr().out, finished
        assert record.weights_hash == whole.weights_hash, finished
        assert consistent_record(folder) == record, finished
        assert {path.name for path in folder.iterdir()} == RESULTS | ({"tensorboard"} if finished else set())


def test_a_run_with_a_damaged_checkpoint_or_damaged_best_weights_says_so_and_starts_again(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(Classifier, "selected_by", "test/accuracy")
    whole = complete(tmp_path / "whole")
    last = killed(tmp_path / "killed", "epoch 2")
    content = last.read_bytes()
    flipped = content[:2000] + bytes([content[2000] ^ 4]) + content[2001:]
    monkeypatch.chdir(tmp_path)
    for file, damaged in ((last.name, flipped), (last.name, content[: len(content) // 2]), ("weights.ckpt", b"")):
        folder = Path(f"{file} {len(damaged)}")  # relative, as by the default paths.outputs
        shutil.copytree(last.parent, folder)
        (folder / file).write_bytes(damaged)
        record = complete(folder)
        assert " · starts again, because its checkpoint is damaged · " in capsys.readouterr().out, folder
        assert untimed(record.curves) == untimed(whole.curves), folder
        assert {path.name for path in folder.iterdir()} == RESULTS
        load_run(folder)
    last.unlink()
    os.mkfifo(last)
    assert untimed(complete(last.parent).curves) == untimed(whole.curves)


def test_a_finished_run_is_loaded_with_its_own_weights_and_data_alone(before, tmp_path, monkeypatch):
    def refused(kind=ConfigurationError):
        with pytest.raises(kind) as caught:
            load_run(tmp_path / "run")
        return str(caught.value)

    assert "there is no record.json; give the folder of a finished run" in refused()
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / "record.json")
    assert "record.json: cannot be read (It is a pipe, not a file); repeat the run" in refused(UserError)
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(before, tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    record = load_record(before / "record.json")
    gone = record.config | {"objective": None, "module": record.config["module"] | {"vocab_parallel": False}}
    (tmp_path / "run" / "record.json").write_text(record.model_copy(update={"config": gone}).to_json())
    load_run(".")  # a run of settings that there were
    weights = tmp_path / "run" / "weights.ckpt"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "weights.ckpt: these are not the weights that the record names; repeat the run" in refused()
    weights.unlink()
    assert "there is no weights.ckpt; repeat the run with keep_weights=true force=true" in refused()
    shutil.copy(before / "weights.ckpt", weights)
    other = record.model_copy(update={"data": record.data | {"content_hash": record.data["content_hash"][::-1]}})
    (tmp_path / "run" / "record.json").write_text(other.to_json())
    assert "its data set has changed" in refused(DataError)


def test_only_the_first_of_several_processes_says_that_the_run_has_finished(before, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    assert complete(before, "seed=1") is None
    shutil.copytree(before, tmp_path / ".seed-1.replaced")  # a forced run was killed; the first process repairs it
    assert complete(tmp_path / "seed-1", "seed=1") is None
    assert capsys.readouterr().out == ""


def test_a_path_with_brackets_is_printed_as_it_is(tmp_path, capsys):
    folder = tmp_path / "[bold]x[" / "red]y"
    complete(folder, "trainer.max_epochs=1", "progress=lines")
    printed = capsys.readouterr().out
    assert f"\n{folder}\n" in printed
    assert f"\n{folder}/record.json\n" in printed


def test_the_last_line_has_the_learned_orders_of_the_reported_epoch(tmp_path, capsys):
    options = "activation=sharmix_learned", "optimizer.entropy_learning_rate=0.005", "progress=lines"
    record = complete(tmp_path / "run", *options)
    complete(tmp_path / "run", *options)
    first, last = record.curves
    orders = f" · q {last['q']:.2f} r {last['r']:.2f}"
    assert learned_orders(record.model_copy(update={"epoch": 1})) == f"q {first['q']:.2f} r {first['r']:.2f}"
    assert learned_orders(record.model_copy(update={"epoch": 1})) not in orders
    lines = [line for line in capsys.readouterr().out.splitlines() if " seed " in line and "accuracy" in line]
    assert len(lines) == 2
    assert all(orders in line for line in lines)


def test_lines_of_a_long_sweep_fit_120_columns_and_keep_the_result(tmp_path, capsys):
    long = ("name=tiny_imagenet_balanced", "activation=sharmix_learned", "activation.objective=brier", "seed=9998")
    asked = settings(*QUICK, *long, "progress=lines")
    for _ in range(2):
        Run(asked, tmp_path / "run", "[115/115] ").complete()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert " seed 9998 · train 1,438 · " in lines[0]
    assert re.search(r" seed 9998 · accuracy \S+ sparsity \S+$", lines[-2])
    assert " seed 9998 · finished before" in lines[-1]


def test_a_run_started_twice_is_trained_once_and_names_the_process_that_it_waits_for(before, tmp_path, capsys):
    folder, printed = tmp_path / "softmax" / "seed-1", ""
    with ThreadPoolExecutor(1) as pool:
        with locked(folder.with_name(".seed-1.lock"), print):
            second = pool.submit(complete, folder, "seed=1")
            while not printed:
                time.sleep(0.01)
                printed = capsys.readouterr().out
            shutil.copytree(before, folder)
        assert second.result(timeout=60) == load_record(before / "record.json")
    assert [*folder.parent.iterdir()] == [folder]
    holder = f"process {os.getpid()} ({psutil.Process().name()})"
    assert printed == f"waits for {holder}, which works on digits softmax seed 1\n"


def test_a_gpu_that_the_run_does_not_use_is_named(tmp_path, capsys, monkeypatch):
    say_start = Run._say_start

    def on_a_machine_with_a_gpu(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr("torch.cuda.is_available", lambda: True)
            say_start(*arguments)

    monkeypatch.setattr(Run, "_say_start", on_a_machine_with_a_gpu)
    complete(tmp_path / "run")
    assert "cpu; the GPU is idle without trainer.accelerator=gpu" in capsys.readouterr().out
