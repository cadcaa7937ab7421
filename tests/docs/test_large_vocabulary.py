"""The code of docs/how_to/large_vocabulary_on_several_gpus.md trains on two processes as on one."""

import subprocess
import sys

import pytest

from tests.docs.pages import DOCS, blocks

PYTHON = [block for block in blocks(DOCS / "how_to/large_vocabulary_on_several_gpus.md") if block.language == "python"]
BEFORE = """
import torch, sharmix
import torch.distributed as dist
from sharmix.parallel import vocab_parallel_loss

dist.init_process_group("gloo")
torch.manual_seed(0)
given, weight = torch.randn(6, 8, requires_grad=True), torch.randn(4_000, 8)
words, parts = torch.randint(4_000, (6,)), weight.split([2_500, 1_500])
hidden, own_weight = 1 * given, parts[dist.get_rank()].requires_grad_()
"""
AFTER = """
loss.backward()
alone = given.detach().requires_grad_()
expected = sharmix.fenchel_young_loss(alone @ weight.T, words, 1.5, 1.5)
expected.backward()
torch.testing.assert_close([loss, given.grad], [expected, alone.grad])
"""


def run(script, folder, processes):
    (folder / "train.py").write_text(script)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "train.py"]
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_losses_of_two_processes_are_those_of_one(tmp_path):
    [script] = [block.code for block in PYTHON if block.file]
    one, two = (
        [float(line.split()[1]) for line in run(script, tmp_path, processes).splitlines()] for processes in (1, 2)
    )
    assert len(one) == 20
    assert one[-1] < one[0] / 2
    assert two == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
def test_a_layer_of_ones_own_gets_the_whole_gradient(tmp_path):
    [block] = [block.code for block in PYTHON if not block.file]
    run(BEFORE + block + AFTER, tmp_path, 2)
