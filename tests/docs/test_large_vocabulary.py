"""The script of docs/how_to/large_vocabulary_on_several_gpus.md prints the same losses on one process and on two."""

import subprocess
import sys

import pytest

from tests.docs.pages import DOCS, blocks


@pytest.mark.slow
def test_the_losses_of_two_processes_are_those_of_one(tmp_path):
    [script] = [block.code for block in blocks(DOCS / "how_to/large_vocabulary_on_several_gpus.md") if block.file]
    (tmp_path / "train.py").write_text(script)

    def losses(processes):
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "train.py"]
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [float(line.split()[1]) for line in done.stdout.splitlines()]

    one, two = losses(1), losses(2)
    assert len(one) == 20
    assert one[-1] < one[0] / 2
    assert two == pytest.approx(one, rel=1e-5)
