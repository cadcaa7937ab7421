"""Processes that divide the words of an output layer have together the gradient of one process."""

import itertools

import pytest
import torch
import torch.distributed as dist

import sharmix
from experiments.modules.vocab_parallel import losses_of_all_tokens

WORDS, FEATURES = 21, 6
PARTS = [(7, 4), (11, 0)]  # tokens of each process; the second time, one has none


def check_gradients(rank, meeting):
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator) for shape in ((11, FEATURES), (WORDS, FEATURES), (WORDS,))
    )
    targets = torch.randint(WORDS, (11,), generator=generator)
    for counts, smoothing, half in itertools.product(PARTS, (0.0, 0.1), (False, True)):
        own, whole = (sharmix.build_activation("sharmix_learned", q=1.4, r=1.6) for _ in range(2))
        inputs = [one.clone().requires_grad_() for one in (hidden, weight, bias)]
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            expected = whole.linear_loss(*inputs, targets, label_smoothing=smoothing)
        expected.backward()

        part = slice(0, counts[0]) if rank == 0 else slice(counts[0], None)
        mine = [hidden[part].clone().requires_grad_(), *(one.clone().requires_grad_() for one in (weight, bias))]
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            share = 2 * counts[rank] / 11  # as the sampler weights the parts of a step
            total, count, step_weight = losses_of_all_tokens(own, *mine, targets[part], share, smoothing)
        (total / count * step_weight).backward()
        found = []
        for tensor in (*mine[1:], *own.entropy_parameters()):  # as DistributedDataParallel does
            dist.all_reduce(tensor.grad)
            found.append(tensor.grad / 2)
        error = 2e-2 if half else 1e-5
        close = {"rtol": error, "atol": error}
        torch.testing.assert_close(total / count, expected, **close)
        torch.testing.assert_close(mine[0].grad / 2, inputs[0].grad[part], **close)
        theirs = [one.grad for one in (*inputs[1:], *whole.entropy_parameters())]
        torch.testing.assert_close(found, theirs, **close)
    dist.destroy_process_group()


@pytest.mark.medium
def test_two_processes_have_together_the_gradient_of_one(tmp_path):
    torch.multiprocessing.spawn(check_gradients, (tmp_path / "meeting",), nprocs=2)
