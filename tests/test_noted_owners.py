"""What a recording notes of compiled code and of captured graphs, in the program itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.cli_runner import SCRIPT
from traceprobe.capture.owners.compiled_code import fused, generated_calls
from traceprobe.capture.owners.driver_graph import demangled
from traceprobe.capture.owners.graph_capture import CapturedGraph, GraphCaptures, _mode
from traceprobe.capture.owners.owner_table import Owner, OwnerTable, shortened
from traceprobe.model.owner_limits import LONGEST_OWNER, MOST_OWNERS

GENERATED = """
# Topologically Sorted Source Nodes: [x], Original ATen: [aten.relu]
triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', '''
    # Topologically Sorted Source Nodes: [inside], Original ATen: [aten.mul]
    inside.run(in_ptr0)
''', device_str='cuda')

def call(args):
    # Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.relu, aten.add]
    stream0 = get_raw_stream(0)
    triton_poi_fused_relu_0.run(arg0_1, buf0, 128, stream=stream0)
    # Unsorted Source Nodes: [h], Original ATen: [aten.t, aten.addmm]
    extern_kernels.bias_addmm(arg1, buf0, out=buf1)
    buf2 = torch.ops.aten._scaled_dot_product_flash_attention.default(buf1, buf1, buf1)
    cpp_fused_add_1(buf2)
    return (buf2, )
"""


def test_the_calls_of_generated_code_are_read_with_what_they_stand_for():
    assert list(generated_calls(GENERATED)) == [
        ("triton_poi_fused_relu_0", ["x", "y"], ["aten.relu", "aten.add"]),
        ("aten::addmm", ["h"], ["aten::addmm"]),
        *[
            (f"aten::{name}", [], [f"aten::{name}"])
            for name in ["_scaled_dot_product_flash_attention"]
        ],
        ("cpp_fused_add_1", [], []),
    ]


def test_a_fused_kernel_has_the_line_of_most_and_the_modules_in_common():
    places = [
        Owner(("net", "a"), "train.py(1): f"),
        Owner(("net", "b"), "train.py(2): f"),
        Owner(("net", "b", "norm"), "train.py(2): f"),
        Owner(),
    ]
    found = fused(places, ["aten.view", "aten.add", "prims.mul", "aten.add"])
    assert found == Owner(("net", "b"), "train.py(2): f", "aten::add + prims::mul")
    assert fused([], ["aten.t"]) == Owner(operator="aten::t")
    assert fused([], []) == Owner()


def test_the_table_is_bounded():
    table = OwnerTable()
    numbers = [table.text(str(n)) for n in range(MOST_OWNERS + 5)]
    assert numbers[-1] == -1
    assert len(table.record()["texts"]) == MOST_OWNERS
    assert len(shortened("k" * 10_000)) <= LONGEST_OWNER
    assert table.owner(Owner()) == -1


def test_names_of_functions_are_written_as_profilers_write_them():
    assert demangled(b"_ZN2at6kernelIfEEvT_i") == "void at::kernel<float>(float, int)"
    assert demangled(b"triton_poi_fused_relu_0") == "triton_poi_fused_relu_0"


def network():
    """Two layers; PyTorch is imported by the tests that need it alone."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 4)
            self.second = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    return Net()


@pytest.fixture
def observed(pytorch):
    """What a mode of a capture notes of a step whose every operator adds a node."""
    import torch

    captures, nodes = GraphCaptures(), SimpleNamespace(number=0)

    class Counted(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            nodes.number += 1
            return result

    nodes.count = lambda: nodes.number
    model = network()
    with Counted():
        mode = _mode(captures, nodes)
        with mode:
            model(torch.ones(2, 4)).sum().backward()
    assert mode.failure is None
    return mode.captured


def test_a_forward_operator_is_owned_by_its_modules_and_line(observed):
    relu = next(owner for _, owner in observed.calls if owner.operator == "aten::relu")
    assert relu.modules == ("nn.Module: Net",)
    assert re.fullmatch(r"(tests/)?test_noted_owners\.py\(\d+\): forward", relu.line)
    products = [owner for _, owner in observed.calls if owner.operator == "aten::addmm"]
    assert [owner.modules[-1] for owner in products] == [
        "nn.Module: first.Linear",
        "nn.Module: second.Linear",
    ]


def test_a_backward_operator_is_owned_by_those_of_its_forward_one(observed):
    backward = [owner for _, owner in observed.calls if owner.operator == "aten::mm"]
    assert {owner.modules[-1] for owner in backward} == {
        "nn.Module: first.Linear",
        "nn.Module: second.Linear",
    }
    (relu,) = [o for _, o in observed.calls if o.operator == "aten::threshold_backward"]
    assert relu.modules == ("nn.Module: Net",)


def test_what_no_operator_added_has_no_owner():
    graph = CapturedGraph()
    graph.until(2, Owner(operator="aten::mm"))
    graph.until(2, Owner(operator="aten::t"))  # added nothing
    graph.until(5, Owner())
    assert graph.calls == [(2, Owner(operator="aten::mm")), (3, Owner())]


class Broken:
    """A graph whose capture cannot be watched: there is no driver here that captures anything."""

    def capture_begin(self, *arguments, **options):
        self.begun = arguments, options

    def capture_end(self):
        self.ended = True

    def replay(self):
        return "replayed"


def test_a_capture_that_cannot_be_watched_is_captured_all_the_same(pytorch):
    import torch

    if torch.cuda.is_available():
        pytest.skip("asks for a machine without a GPU")
    captures = GraphCaptures()
    captures.watch(Broken)
    graph = Broken()
    graph.capture_begin("pool", capture_error_mode="global")
    graph.capture_end()
    assert graph.begun == (("pool",), {"capture_error_mode": "global"})
    assert graph.ended
    assert graph.replay() == "replayed"
    assert captures.replays == [-1]
    assert captures.reasons
    assert not captures.graphs


def test_the_nodes_of_a_graph_are_counted_and_named(pytorch):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("CUDA graphs need a GPU")
    captures = GraphCaptures()

    class Graph(torch.cuda.CUDAGraph):
        pass

    captures.watch(Graph)
    model, x = network().cuda(), torch.ones(2, 4, device="cuda")
    model(x).sum().backward()
    graph = Graph()
    with torch.cuda.graph(graph):
        model(x).sum().backward()
    graph.replay()
    (captured,) = captures.graphs
    assert not captures.reasons
    assert captures.replays == [0]
    assert sum(nodes for nodes, _ in captured.calls) == len(captured.names) > 5
    assert any("gemm" in (name or "") or "gemv" in (name or "") for name in captured.names)


PROGRAM = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
compiled = torch.compile(net)
while True:
    compiled(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_recording_of_compiled_code_knows_its_lines_and_modules(tmp_path, monkeypatch):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    command = [
        *(*SCRIPT, "profile", "-q", "-o", str(tmp_path / "run"), "--warmup", "2"),
        *("--calibrate", "2", "--active", "3", "--", sys.executable, str(program)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    recorded = json.loads((tmp_path / "run" / "rank0.traceprobe.json").read_text())
    noted = recorded["kernel_owners"]
    texts = noted["texts"]

    def told(owner):
        operator, line, *modules = (texts[n] if n >= 0 else None for n in noted["owners"][owner])
        return operator, line, tuple(modules)

    assert noted["reasons"] == []
    assert len(noted["compiled"]) == 2
    found = {told(owner) for code in noted["compiled"] for _, owner in code["calls"] if owner >= 0}
    line = "train.py(11): forward"
    assert ("aten::addmm", line, ("nn.Module: first.Linear",)) in found
    assert ("aten::mm", line, ("nn.Module: second.Linear",)) in found
    assert str(tmp_path) not in json.dumps(noted)
