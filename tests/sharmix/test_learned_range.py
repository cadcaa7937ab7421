"""Learned parameters, however they are trained, copied or loaded: they move, and never leave their range."""

import copy
import linecache
import pickle
import re
import warnings

import pytest
import torch
from torch import nn

import sharmix
from tests.sharmix.cases import for_every

LEAST, BOUND = torch.tensor(1.01).item(), 2.0

ACTIVATIONS = {
    "sharmix": lambda: sharmix.build_activation("sharmix_learned", q=1.25, r=1.5),
    "entmax": lambda: sharmix.build_activation("entmax_learned", alpha=1.5),
    "one order a head": lambda: sharmix.build_activation(
        "sharmix_learned", q=torch.linspace(1.1, 1.9, 4).reshape(4, 1), r=1.5, objective="brier"
    ),
}
OPTIMIZERS = {
    "SGD": lambda of: torch.optim.SGD(of, lr=1.0),
    "SGD, momentum and decay": lambda of: torch.optim.SGD(of, lr=1.0, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda of: torch.optim.AdamW(of, lr=1.0, weight_decay=0.1),
    "AdamW foreach": lambda of: torch.optim.AdamW(of, lr=1.0, weight_decay=0.1, foreach=True),
    "AdamW fused": lambda of: torch.optim.AdamW(of, lr=1.0, weight_decay=0.1, fused=True),
    "RMSprop": lambda of: torch.optim.RMSprop(of, lr=1.0),
    "Adagrad": lambda of: torch.optim.Adagrad(of, lr=1.0),
    "LBFGS": lambda of: torch.optim.LBFGS(of, lr=1.0, max_iter=5),
    "LBFGS, line search": lambda of: torch.optim.LBFGS(of, lr=1.0, max_iter=5, line_search_fn="strong_wolfe"),
}


def test_orders_that_no_optimizer_has_are_named_once_at_its_second_step():
    def steps(optimizers, criterion):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                criterion(layer(torch.ones(2, 4)), torch.tensor([0, 1])).backward()
                for optimizer in optimizers:
                    optimizer.step()
        return caught

    layer = nn.Linear(4, 3)
    network = torch.optim.SGD(layer.parameters(), lr=0.1)
    forgotten = sharmix.SharMiXLoss(learned=True)
    (said,) = steps([network], forgotten)
    assert str(said.message).startswith(
        "no optimizer has the learned q and r of SharMiX, which get gradients; give the optimizer"
    )
    assert linecache.getline(said.filename, said.lineno).strip() == "optimizer.step()"
    torch.optim.lr_scheduler.StepLR(network, 1)  # puts a call of its own around the step
    (said,) = steps([network], sharmix.SharMiXLoss(learned=True))
    assert linecache.getline(said.filename, said.lineno).strip() == "optimizer.step()"
    assert steps([network], forgotten) == []
    in_turns = sharmix.SharMiXLoss(learned=True)
    assert steps([network, torch.optim.SGD(in_turns.parameters(), lr=0.1)], in_turns) == []
    frozen = sharmix.SharMiXLoss(learned=True).requires_grad_(False)
    assert steps([network], frozen) == []


def test_a_step_that_computes_the_loss_several_times_leaves_orders_out_once():
    layer, criterion = nn.Linear(4, 3), sharmix.SharMiXLoss(learned=True)
    network, orders = torch.optim.LBFGS(layer.parameters(), max_iter=5), torch.optim.SGD(criterion.parameters(), lr=0.1)

    def closure():
        loss = criterion(layer(torch.ones(2, 4)), torch.tensor([0, 1]))
        loss.backward()
        return loss

    for _ in range(2):
        network.step(closure)
        orders.step()
    criterion = sharmix.SharMiXLoss(learned=True)
    network.step(closure)
    with pytest.warns(UserWarning, match="no optimizer has the learned q and r") as caught:
        network.step(closure)
    (said,) = caught
    assert linecache.getline(said.filename, said.lineno).strip() == "network.step(closure)"


def test_a_closure_may_be_given_by_its_name():
    act, seen = sharmix.SharMiX(learned=True), []
    optimizer = torch.optim.LBFGS(act.parameters(), lr=50.0, max_iter=3)

    def closure():
        seen.append(max(act.q.item(), act.r.item()))
        optimizer.zero_grad()
        loss = act.loss(torch.tensor([[1.0, 0.5, 0.2]]), torch.tensor([0]))
        loss.backward()
        return loss

    optimizer.step(closure=closure)
    assert len(seen) > 1
    assert max(seen) < BOUND


def test_a_learned_state_for_fixed_orders_says_how_to_build_them():
    state = sharmix.SharMiXLoss(learned=True).state_dict()
    message = (
        r"activation.q, activation.r: learned in this state, and a number in this SharMiX; build .*learned=\['q', 'r'\]"
    )
    with pytest.raises(RuntimeError, match=message):
        sharmix.SharMiXLoss().load_state_dict(state)
    with pytest.raises(RuntimeError, match=message):
        sharmix.SharMiXLoss(q=2, r=2).load_state_dict(state, strict=False)
    sharmix.SharMiXLoss(learned=True).load_state_dict(state)
    state = sharmix.SharMiX(learned=("q", "r", "temperature")).state_dict()
    with pytest.raises(RuntimeError, match=r"build it with learned=\['q', 'r', 'temperature'\]"):
        sharmix.SharMiX(learned=True).load_state_dict(state)


class Network(nn.Module):
    """A linear layer under the loss of learned orders, on fixed examples [16, 4 heads, 5 classes]."""

    def __init__(self, act=None, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layer, self.act = nn.Linear(8, 5), act or ACTIVATIONS["sharmix"]()
        self.inputs, self.targets = torch.randn(16, 4, 8), torch.randint(5, (16, 4))
        self.seen = []

    def forward(self):
        self.see()
        return self.act.loss(self.layer(self.inputs), self.targets)

    def see(self):
        orders = (getattr(order, "full_tensor", order.detach)() for order in self.act.parameters())
        self.seen.append([value for order in orders for value in order.flatten().tolist()])

    def orders_moved_inside(self):
        self.see()
        assert all(LEAST <= value < BOUND for values in self.seen for value in values), self.seen
        assert any(values != self.seen[0] for values in self.seen), self.seen


def train(network, optimizer, steps=8):
    def closure():
        optimizer.zero_grad()
        loss = network()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


def adamw(network):
    return torch.optim.AdamW(network.parameters(), lr=1.0, weight_decay=0.1)


@pytest.mark.medium
@for_every(activation=[*ACTIVATIONS], optimizer=[*OPTIMIZERS])
def test_orders_at_learning_rate_1_move_and_never_leave_their_range(activation, optimizer):
    network = Network(ACTIVATIONS[activation]())
    of = network.act if "LBFGS" in optimizer else network  # its layer diverges, whatever the orders
    train(network, OPTIMIZERS[optimizer](of.parameters()), steps=5)
    network.orders_moved_inside()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_range_is_half_open_in_every_dtype(dtype):
    act = ACTIVATIONS["sharmix"]().to(dtype)
    optimizer = torch.optim.SGD(act.parameters(), lr=10.0)
    (act.r - act.q).backward()
    optimizer.step()
    assert act.q.item() == torch.nextafter(torch.tensor(2, dtype=dtype), torch.tensor(0, dtype=dtype)).item()
    assert act.r.item() == torch.tensor(1.01, dtype=dtype).item()


def test_a_start_is_checked_before_it_is_rounded():
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert 1.9 < sharmix.SharMiX(q=1.999, learned=True).q < 2
    finally:
        torch.set_default_dtype(torch.float32)
    least = sharmix.SharMiX(q=1.01, learned=True).q.item()
    assert sharmix.SharMiX(q=least, learned=True).q.item() == least


def test_a_temperature_has_a_range_of_its_own():
    act = sharmix.SharMiX(temperature=5.0, learned="temperature")
    optimizer = torch.optim.SGD(act.parameters(), lr=100.0)
    for slope, limit in ((-1, 10.0), (1, 0.1)):
        optimizer.zero_grad()
        (slope * act.temperature).backward()
        optimizer.step()
        assert act.temperature.item() == pytest.approx(limit)


def test_a_step_leaves_the_parameters_of_other_optimizers_alone():
    network = Network()
    optimizer = torch.optim.SGD(network.layer.parameters(), lr=1.0)
    losses = network.act.loss(network.layer(network.inputs).detach(), network.targets, reduction="none")
    network.layer(network.inputs).sum().backward()
    optimizer.step()
    losses.sum().backward()  # an error if an order had been written to: the graph of a loss for each row holds it

    network.act.q.data.fill_(3.0)
    optimizer.step()
    assert network.act.q.item() == 3.0


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")  # torch's own, of its tracer
def test_compiled_modules_and_losses_keep_their_orders_in_range():
    for compiled in ("map", "loss", "step"):
        network = Network()
        optimizer = adamw(network)
        if compiled == "map":
            network.act.compile(fullgraph=True, backend="aot_eager")
        loss = torch.compile(network.act.loss, fullgraph=True, backend="aot_eager")
        step = torch.compile(optimizer.step, backend="aot_eager") if compiled == "step" else optimizer.step
        for _ in range(4):
            network.see()
            optimizer.zero_grad()
            logits = network.layer(network.inputs)
            if compiled == "map":
                nn.functional.nll_loss(network.act(logits).reshape(-1, 5), network.targets.flatten()).backward()
            else:
                loss(logits, network.targets).backward()
            step()
        network.orders_moved_inside()


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda module: pickle.loads(pickle.dumps(module))}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_keeps_its_own_orders_in_range(way):
    network = Network()
    copied = COPIES[way](network)
    train(copied, adamw(copied))
    copied.orders_moved_inside()
    assert [order.item() for order in network.act.parameters()] == [1.25, 1.5]


def assign_parameters(network, state):
    """As transformers loads weights."""
    for key, values in state.items():
        name, _, last = key.rpartition(".")
        setattr(network.get_submodule(name), last, nn.Parameter(values))


LOADS = {
    "in place": lambda network, state: network.load_state_dict(state),
    "by assignment": lambda network, state: network.load_state_dict(state, assign=True),
    "onto meta": lambda network, state: network.to("meta").load_state_dict(state, assign=True),
    "parameter by parameter": assign_parameters,
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_value_out_of_range_is_loaded_as_the_nearest_inside_with_a_warning(load):
    network, state = Network(), Network(seed=1).state_dict()
    state["act.q"], state["act.r"] = torch.tensor(3.08), torch.tensor(0.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load(network, state)
    first, second = sorted(str(warning.message) for warning in caught)
    assert re.search(r"q=3\.08.*\[1\.01, 2\.0\)", first)
    assert re.search(r"r=0\.5.*\[1\.01, 2\.0\)", second)
    largest = torch.tensor(BOUND).nextafter(torch.tensor(LEAST)).item()
    assert [order.item() for order in network.act.parameters()] == [largest, LEAST]
    assert [state["act.q"].item(), state["act.r"].item()] == [torch.tensor(3.08).item(), 0.5]


@pytest.mark.parametrize("start", [1.01, 1.9999])
def test_a_checkpoint_in_bfloat16_is_loaded_without_a_warning(start):
    act = sharmix.SharMiX(learned=True)
    act.load_state_dict({name: torch.tensor(start).bfloat16() for name in ("q", "r")})  # a warning is an error
    assert all(torch.tensor(LEAST) <= order < BOUND for order in (act.q, act.r))


def test_project_puts_orders_into_their_ranges():
    act = sharmix.SharMiX(learned=("q", "r", "temperature"))
    for order, value in ((act.q, 3.0), (act.r, 0.5), (act.temperature, 20.0)):
        order.data.fill_(value)
    act.project_()
    assert [act.q.item(), act.r.item(), act.temperature.item()] == pytest.approx([2, LEAST, 10])
    assert act.q < BOUND


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_nan_is_loaded_with_a_warning_and_refused_by_the_map(load):
    network, state = Network(), Network(seed=1).state_dict()
    state["act.q"] = torch.tensor(torch.nan)
    with pytest.warns(UserWarning, match=r"q=nan is out of the range \[1\.01, 2\.0\).*no forward pass takes it"):
        load(network, state)
    with pytest.raises(ValueError, match="q=nan is not allowed"):
        network.act(torch.zeros(2, 3))


def train_in_parallel(rank, meeting, processes):
    """By DistributedDataParallel, by ZeroRedundancyOptimizer, and sharded."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=processes)
    for zero in (False, True):
        network = Network(seed=rank)  # other examples in each process
        parallel = nn.parallel.DistributedDataParallel(network)
        settings = {"lr": 1.0, "weight_decay": 0.1}
        redundant = ZeroRedundancyOptimizer(network.parameters(), torch.optim.AdamW, **settings) if zero else None
        train(parallel, redundant or torch.optim.AdamW(network.parameters(), **settings))
        network.orders_moved_inside()
        orders = [torch.zeros(2) for _ in range(processes)]
        torch.distributed.all_gather(orders, torch.tensor(network.seen[-1]))
        assert torch.equal(orders[0], orders[-1])

    network = Network(sharmix.build_activation("sharmix_learned", q=torch.tensor([1.25]), r=torch.tensor([1.5])))
    mesh = init_device_mesh("cpu", (processes,))
    fully_shard(network, mesh=mesh)
    train(network, adamw(network))
    network.orders_moved_inside()
    train_beside_shards(mesh, rank, processes)
    torch.distributed.destroy_process_group()


def train_beside_shards(mesh, rank, processes):
    """FSDP2 refuses scalar orders, and leaves them and their gradients whole if it is told to."""
    from torch.distributed.fsdp import fully_shard

    network, alone = Network(), Network()
    with pytest.raises(ValueError, match="doesn't support scalar parameters"):
        fully_shard(Network(), mesh=mesh)
    orders = {*network.act.parameters()}
    fully_shard(network, mesh=mesh, ignored_params=orders)
    for name in ("inputs", "targets"):  # other examples in each process
        setattr(network, name, getattr(network, name).chunk(processes)[rank])

    optimizers = [
        torch.optim.SGD([{"params": one.layer.parameters()}, {"params": one.act.parameters()}], 0.1)
        for one in (network, alone)
    ]
    for _ in range(5):
        for one in (network, alone):
            one.zero_grad()
            one().backward()
        for order in orders:
            torch.distributed.all_reduce(order.grad)
            order.grad /= processes
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(network.seen, alone.seen)
    assert network.seen[0] != network.seen[-1]


@pytest.mark.medium
def test_parallel_wrappers_keep_orders_in_range(tmp_path):
    train_in_parallel(0, tmp_path / "meeting", 1)


@pytest.mark.slow
def test_two_processes_keep_the_same_orders_in_range(tmp_path):
    """One of them has no part of an order that is sharded."""
    torch.multiprocessing.spawn(train_in_parallel, (tmp_path / "meeting", 2), nprocs=2)


def test_accelerate_keeps_orders_in_range():
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True, gradient_accumulation_steps=2)
    network = Network()
    model, optimizer = accelerator.prepare(network, adamw(network))
    for _ in range(8):
        with accelerator.accumulate(model):
            accelerator.backward(model())
            optimizer.step()
            optimizer.zero_grad()
    network.orders_moved_inside()
