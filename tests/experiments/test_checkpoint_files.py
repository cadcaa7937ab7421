"""Files of checkpoints: no damage goes unseen, and no failed writing leaves half of one."""

import errno
import os
import resource
from pathlib import Path

import pytest
import torch

from experiments import checkpoint_files
from experiments.checkpoint_files import DamagedFileError, load_checkpoint, save_checkpoint, stated_digest
from tests.sharmix.cases import every_case

CONTENT = {"state_dict": {"weight": torch.arange(6.0).reshape(2, 3)}, "epoch": 3}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_checkpoint(CONTENT, tmp_path / "weights.ckpt")
    return tmp_path / "weights.ckpt"


def test_a_whole_file_is_read_here_and_by_torch_alone(file: Path) -> None:
    for read in (load_checkpoint(file), torch.load(file, weights_only=True)):
        assert read["epoch"] == 3
        assert torch.equal(read["state_dict"]["weight"], CONTENT["state_dict"]["weight"])
    assert len(stated_digest(file)) == 64


def test_a_flipped_bit_anywhere_is_found(file: Path) -> None:
    whole = file.read_bytes()
    with every_case() as case:
        for place in (*range(0, len(whole) - 72, 9), *range(len(whole) - 72, len(whole))):
            with case(byte=place):
                spoiled = bytearray(whole)
                spoiled[place] ^= 1 << place % 8
                file.write_bytes(spoiled)
                with pytest.raises(DamagedFileError, match=r"weights\.ckpt"):
                    load_checkpoint(file)


def test_a_file_that_is_cut_off_or_is_no_checkpoint_is_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    torch.save(CONTENT, tmp_path / "of_an_earlier_version")
    earlier = (tmp_path / "of_an_earlier_version").read_bytes()
    lengths = (0, 1, 50, 72, 100, len(whole) // 2, len(whole) - 1)
    contents = [*(whole[:length] for length in lengths), b"garbage" * 1000, earlier, whole + b"\n", whole[-72:] * 2]
    with every_case() as case:
        for content in contents:
            file.write_bytes(content)
            with case(bytes=len(content)), pytest.raises(DamagedFileError, match=r"weights\.ckpt"):
                load_checkpoint(file)
        with case(folder=True), pytest.raises(DamagedFileError, match="Is a directory"):
            load_checkpoint(tmp_path)


def test_a_full_disk_leaves_the_file_before_and_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()
    large = {"weight": torch.zeros(2**16)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        with pytest.raises(OSError, match=r"weights\.ckpt") as caught:
            save_checkpoint(large, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*weights\.ckpt"):
        save_checkpoint(large, file)
    assert file.read_bytes() == before
    assert [*file.parent.iterdir()] == [file]


def test_a_file_that_holds_code_is_not_loaded(tmp_path: Path) -> None:
    save_checkpoint({"code": checkpoint_files.save_checkpoint}, tmp_path / "last.ckpt")
    with pytest.raises(DamagedFileError, match=r"last\.ckpt: cannot be loaded"):
        load_checkpoint(tmp_path / "last.ckpt")
