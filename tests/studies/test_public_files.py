"""Files of public data sets are known by their content, and an error says where to get one."""

import hashlib
import re

import pytest

from experiments.errors import DataError
from studies.public_files import read_public_file

ENTRY = {"file": "sets/a.npy", "url": "https://example.org/a.npy", "sha256": hashlib.sha256(b"right").hexdigest()}


def test_a_file_of_the_right_content_is_read(tmp_path):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "a.npy").write_bytes(b"right")
    assert read_public_file(tmp_path, ENTRY) == b"right"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"wrong", f"its SHA-256 is {hashlib.sha256(b'wrong').hexdigest()}, but {ENTRY['sha256']} is expected"),
    ],
)
def test_the_error_names_the_file_its_home_and_its_place(tmp_path, content, problem):
    file = tmp_path / "sets" / "a.npy"
    if content is not None:
        file.parent.mkdir()
        file.write_bytes(content)
    message = f"{file}: {problem}; download https://example.org/a.npy and keep it as {file}"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read_public_file(tmp_path, ENTRY)


def test_without_a_folder_the_error_asks_for_one():
    message = "sets/a.npy: no folder of data sets is given; download https://example.org/a.npy and keep it as "
    given = "--data FOLDER, or DATA=FOLDER to make"
    with pytest.raises(DataError, match=f"^{re.escape(message)}FOLDER/sets/a.npy, then give {given}$"):
        read_public_file(None, ENTRY)
