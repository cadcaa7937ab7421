"""Counting the examples that cannot be read, in one process and in several."""

import logging
from pathlib import Path

import pytest
import torch

from experiments.data.unreadable import Unreadable
from experiments.errors import DataError


def test_a_name_counts_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    unreadable = Unreadable(most=1)
    with caplog.at_level(logging.WARNING):
        unreadable.add(["one"])
        unreadable.add(["one", "one"])
    assert unreadable.names == {"one"}
    assert [record.getMessage() for record in caplog.records] == ["left out, as number 1 that cannot be read: one"]


def test_too_many_are_one_error_with_their_names_and_the_remedy() -> None:
    unreadable = Unreadable(most=11)
    names = [f"image {number:02}" for number in range(12)]
    unreadable.add(names[:11])
    with pytest.raises(DataError, match="12 examples cannot be read, 11 are allowed") as caught:
        unreadable.add(names)
    message = str(caught.value)
    assert all(name in message for name in names[:10])
    assert not any(name in message for name in names[10:])  # ten tell enough
    assert "data.unreadable_share" in message


def test_one_process_gathers_its_own_names() -> None:
    unreadable = Unreadable(most=2)
    unreadable.add(["one", "two"])
    unreadable.gather()
    assert unreadable.names == {"one", "two"}


def test_broken_files_of_all_processes_count_together(tmp_path: Path) -> None:
    meeting = f"file://{tmp_path}/meeting"
    torch.multiprocessing.start_processes(_count, (meeting,), nprocs=2, start_method="fork")


def _count(process: int, meeting: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=meeting, world_size=2, rank=process)
    unreadable = Unreadable(most=2)
    unreadable.add(["both"])
    unreadable.gather()
    assert unreadable.names == {"both"}
    unreadable.add([f"of {process}"])
    with pytest.raises(DataError, match="3 examples cannot be read"):
        unreadable.gather()
    assert unreadable.names == {"both", "of 0", "of 1"}
    torch.distributed.destroy_process_group()
