"""Maps and modules outside of Python: ONNX, exported and compiled programs, traces."""

import re
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import sharmix
from sharmix import _private_torch
from sharmix._mathematics import bisection
from tests.sharmix.cases import assert_errors_within, every_case, for_every
from tests.sharmix.doors import NAMES, build
from tests.sharmix.exported import GOAL, KINDS, Exported, exported_map, logits, second_orders, worst_error

BATCH_AND_CLASSES = ({0: Dim("batch"), 1: Dim("classes")},)
INF = float("inf")


@pytest.fixture(scope="module")
def map_of_rows():
    return exported_map()


@pytest.mark.medium
@pytest.mark.parametrize(
    "name", [name if name == "sharmix_learned" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_every_activation_in_onnxruntime(name, monkeypatch):
    """By a coarse bisection, which exports in a third of the time; wrong orders would be far more than its error off.

    The map whose orders are inputs shows how exact the bisection is at its full length.
    """
    monkeypatch.setattr(bisection, "_STEPS", 14)
    act, goal = build(name, torch.float32), GOAL if name in ("softmax", "alpha_relu") else 1e-3
    exported = Exported(act, torch.randn(3, 5))
    rows = torch.randn(6, 40) * torch.tensor([0.01, 0.1, 1.0, 3.0, 10.0, 100.0]).unsqueeze(-1)
    masked = rows.masked_fill(torch.rand(6, 40) < 0.5, -INF)
    masked[:, 0] = 0
    exact = build(name)
    with every_case() as case:
        for label, z in {"other sizes": rows, "masked": masked, "one class": rows[:1, :1]}.items():
            with case(logits=label):
                torch.testing.assert_close(exported(z).double(), exact(z.double()), rtol=GOAL, atol=goal)


@pytest.mark.slow
def test_the_exported_map_is_exact(map_of_rows):
    generator, errors = torch.Generator().manual_seed(0), {}
    for q in (torch.tensor(q).item() for q in (1.0, 1 + 1e-6, 1.01, 1.1, 1.5, 2.0)):
        for r in second_orders(q):
            for kind in KINDS:
                for classes, scale in ((2, 1.0), (3, 0.1), (100, 1.0), (100, 10.0), (1_000, 0.1), (1_000, 1.0)):
                    z = logits(kind, classes, scale, generator)
                    errors[q, r, kind, classes, scale] = worst_error(map_of_rows, q, r, z)
    for q, r in ((1.0, 1.0), (1.5, 1.5), (2.0, 2.0), (2.0, 3.0)):
        for kind in KINDS:
            errors[q, r, kind, 32_000] = worst_error(map_of_rows, q, r, logits(kind, 32_000, 0.1, generator)[::4])
    for q, r, temperature in ((1.0, 1.5, 2.0), (1.25, 1.5, 0.125), (1.5, 1.5, 0.5)):
        errors[q, r, temperature] = worst_error(map_of_rows, q, r, logits("normal", 12, 1.0, generator), temperature)
    assert_errors_within(errors, GOAL)


@pytest.mark.slow
def test_orders_that_come_with_the_input_give_nan_where_they_are_not_allowed(map_of_rows):
    orders = [(1.5, 1.5, 1), (1.5, 1.25, 1), (2.5, 2.5, 1), (0.9, 1.5, 1), (1.5, float("nan"), 1), (1.5, 1.5, 0)]
    allowed, *refused = map_of_rows(torch.randn(6, 4), *torch.tensor(orders).split(1, dim=-1))
    assert allowed.isfinite().all()
    assert all(p.isnan().all() for p in refused)


@pytest.mark.slow
def test_the_example_of_the_documentation(tmp_path, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    names = {"__name__": "example"}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    output, weights = names["model"].double()(torch.from_numpy(names["x"]).double())
    assert (weights == 0).any()
    assert weights.shape == (3, 17, 17)
    torch.testing.assert_close(torch.from_numpy(names["weights"]).double(), weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.from_numpy(names["output"]).double(), output, rtol=0, atol=1e-6)


PER_HEAD = torch.tensor([1.25, 1.5, 1.75]).reshape(3, 1, 1)


@pytest.mark.slow
@for_every(
    "message, act",
    {
        r"\(q, r\) = \(1.5, 1.25\) cannot be exported": sharmix.build_activation("sharmix_fixed", q=1.5, r=1.25),
        r"\(q, r\) = \(2.5, 2.5\) cannot be exported": sharmix.build_activation("entmax", alpha=2.5),
        r"\(q, r\) = \(1.75, 1.25\) cannot be exported": sharmix.build_activation("sharmix_learned", q=1.75, r=1.25),
        r"\(q, r\) = \(1.75, 1.4\) cannot be exported": sharmix.build_activation("sharmix_learned", q=PER_HEAD, r=1.4),
        "has no threshold yet": sharmix.build_activation("alpha_relu"),
    }.items(),
)
def test_what_cannot_be_exported_is_refused(message, act):
    with pytest.raises(torch.onnx.OnnxExporterError, match=message) as raised:
        torch.onnx.export(act.eval(), (torch.randn(3, 2, 4),), dynamo=True, verbose=False)
    assert isinstance(raised.value.__cause__, RuntimeError if "threshold" in message else ValueError)


def test_only_an_onnx_export_is_taken_for_one():
    program = torch.export.export(build("sharmix_learned", torch.float32), (torch.randn(3, 5),))
    assert torch.ops.sharmix.solve.default in {node.target for node in program.graph.nodes}
    assert not _private_torch.in_onnx_export()


NOT_CORE = {"aten._assert_tensor_metadata.default"}  # of a cast, whose type `run_decompositions` checks


@pytest.mark.medium
@pytest.mark.parametrize(
    "act",
    [
        sharmix.Entmax(),
        sharmix.SharMiX(learned=("r",)),
        sharmix.Normmax(learned=True, masked_rows="zeros"),
        pytest.param(sharmix.Entmax(alpha=torch.tensor([1.1, 1.5]).reshape(2, 1, 1)), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_decompositions_leave_core_aten_alone(act):
    """As ExecuTorch needs it; with executorch 1.5.1, such programs run in its runtime."""
    z = torch.randn(2, 3, 5)
    program = torch.export.export(act.eval(), (z,), dynamic_shapes=({1: Dim("batch"), 2: Dim("classes")},))
    program = program.run_decompositions(sharmix.export_decompositions())
    operators = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert {str(one) for one in operators if torch.Tag.core not in getattr(one, "tags", (torch.Tag.core,))} <= NOT_CORE
    other = 3 * torch.randn(2, 7, 40)
    torch.testing.assert_close(program.module()(other), act(other), rtol=GOAL, atol=GOAL)


class OrderAsInput(torch.nn.Module):
    def forward(self, logits, r):
        return sharmix.sharmix(logits, 2.5, r)


@pytest.mark.medium
def test_decompositions_refuse_orders_by_name_and_keep_the_operators_of_losses():
    z, table = torch.randn(2, 5), sharmix.export_decompositions()
    for orders in ((1.5, 1.25), (2.5, 2.5)):
        program = torch.export.export(sharmix.SharMiX(*orders), (z,))
        with pytest.raises(ValueError, match=r"\(q, r\) = \(.*\) cannot be exported to ONNX or core ATen"):
            program.run_decompositions(table)
    with pytest.raises(ValueError, match=r"^q = 2.5 cannot be exported"):  # whatever the input r
        torch.export.export(OrderAsInput(), (z, torch.tensor(2.0))).run_decompositions(table)
    program = torch.export.export(sharmix.EntmaxLoss(label_smoothing=0.1), (z, torch.tensor([0, 1])))
    kept = program.run_decompositions(table)
    assert torch.ops.sharmix.solve.default in {node.target for node in kept.graph.nodes}


@pytest.mark.slow
def test_ahead_of_time_compiled(tmp_path):
    act, x = build("sharmix_learned", torch.float32).eval(), torch.randn(4, 9)
    with torch.no_grad():
        program = torch.export.export(act, (torch.randn(3, 5),), dynamic_shapes=BATCH_AND_CLASSES)
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
        torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), act(x), rtol=0, atol=0)
