"""What a run draws in a terminal of 80 columns."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios

import pytest

from experiments.identity import ROOT
from tests.end_to_end.runner import QUICK

pytestmark = pytest.mark.medium


def drawn(columns, *overrides):
    """What `python run.py` writes to a terminal of so many columns, in pieces between returns and new lines."""
    process, terminal = pty.fork()
    if not process:
        os.execv(sys.executable, [sys.executable, str(ROOT / "run.py"), *overrides])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written = bytearray()
    try:
        while part := os.read(terminal, 1 << 16):
            written += part
    except OSError:  # the process has ended
        pass
    assert os.waitpid(process, 0)[1] == 0, written
    return re.split("[\r\n]", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", written.decode()))


def test_the_line_of_an_epoch_fits_the_terminal(tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = [piece for piece in drawn(80, *QUICK, f"paths.outputs={tmp_path}") if piece.startswith("epoch ")]
    assert max(map(len, lines)) < 80
    assert re.fullmatch(r"epoch 3/3 loss .* q 1\.\d\d r 1\.\d\d · 0 s left", lines[-1])
