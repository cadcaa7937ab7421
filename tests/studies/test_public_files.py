"""Files of public data sets are known by their content, and an error says where to get one."""

import hashlib
import re

import pytest

from experiments.errors import DataError
from studies.public_files import read_public_file

ENTRY = {"file": "sets/a.npy", "url": "https://example.org/a.npy", "sha256": hashlib.sha256(b"right").hexdigest()}


def test_a_file_is_read_if_its_content_is_right_and_the_error_names_its_home_and_its_place(tmp_path):
    file = tmp_path / "sets" / "a.npy"
    remedy = f"; download https://example.org/a.npy and keep it as {file}"
    with pytest.raises(DataError, match=rf"^{file}: cannot be read \(.*No such file.*\){re.escape(remedy)}$"):
        read_public_file(tmp_path, ENTRY)
    file.parent.mkdir()
    file.write_bytes(b"wrong")
    with pytest.raises(DataError, match=f"^{file}: its SHA-256 is .*, but .* is expected{re.escape(remedy)}$"):
        read_public_file(tmp_path, ENTRY)
    file.write_bytes(b"right")
    assert read_public_file(tmp_path, ENTRY) == b"right"
    with pytest.raises(DataError, match="no folder of data sets is given; download"):
        read_public_file(None, ENTRY)
