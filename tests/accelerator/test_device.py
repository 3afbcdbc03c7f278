"""Tests of the test device, in plain PyTorch."""

from __future__ import annotations

import pytest

from tests.accelerator.run_on_device import run_on_device, run_on_ranks

KERNEL, LAUNCH, RATE = 2000, 1000, 16  # its costs: ns, ns, bytes per ns


@pytest.fixture
def on_device(tmp_path):
    """Run a program on the device; return its answer."""
    return lambda program: run_on_device(program, tmp_path)


def test_gradients_are_those_of_the_cpu(on_device):
    assert on_device("""
        import copy
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
            torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.LayerNorm(36),
            torch.nn.Linear(36, 3),
        )
        batch, target = torch.randn(2, 3, 8, 8), torch.tensor([0, 2])
        found = []
        for device in ("cpu", "sim:1"):
            own = copy.deepcopy(model).to(device)
            optimizer = torch.optim.SGD(own.parameters(), 0.1, momentum=0.9, fused=True)
            for _ in range(2):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(own(batch.to(device)), target.to(device))
                loss.backward()
                optimizer.step()
            found.append([each.cpu() for p in own.parameters() for each in (p.grad, p)])
        answer(all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found)))
    """)


def test_recurrent_layers_give_what_the_cpu_gives(on_device):
    assert (
        on_device("""
        import copy
        def gradients(model, x):
            x = x.clone().requires_grad_()
            output, _ = model(x)
            output.square().sum().backward()
            found = [output, x.grad, *(each.grad for each in model.parameters())]
            return [each.detach().cpu() for each in found]
        same = []
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            for bias in (True, False):
                model, x = kind(3, 4, 2, bias=bias), torch.randn(5, 2, 3)
                other = gradients(copy.deepcopy(model).to("sim"), x.to("sim"))
                pairs = zip(gradients(model, x), other)
                same.append(all(torch.allclose(a, b, atol=1e-5) for a, b in pairs))
        answer(same)
    """)
        == [True] * 6
    )


def test_optimizers_change_parameters_as_on_the_cpu(on_device):
    assert (
        on_device("""
        import itertools
        def train(device, kind, **settings):
            torch.manual_seed(0)
            w = torch.randn(5, 3).to(device).requires_grad_()
            optimizer = kind([w], lr=0.1, **settings)
            for _ in range(3):
                w.grad = torch.arange(15.0).view(5, 3).to(device) - 7
                optimizer.step()
            return w.detach().cpu()
        kinds = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
        ways = ({"foreach": False}, {"foreach": True}, {"fused": True})
        answer([
            [kind.__name__, way] for kind, way in itertools.product(kinds, ways)
            if not torch.allclose(train("cpu", kind, **way), train("sim", kind, **way))
        ])
    """)
        == []
    )


def test_embeddings_attention_and_indices_give_what_the_cpu_gives(on_device):
    assert on_device("""
        def step(device):
            torch.manual_seed(0)
            table = torch.randn(7, 8).to(device).requires_grad_()
            index = torch.tensor([[1, 2, 2], [0, 6, 3]]).to(device)
            heads = torch.nn.functional.embedding(index, table).view(2, 3, 2, 4).transpose(1, 2)
            mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            mixed = mixed.transpose(1, 2).reshape(6, 8)
            mixed = mixed.index_put((index[0],), mixed[:3]).scatter(1, index.view(6, 1), 2.0)
            torch._foreach_mul([mixed, mixed.t()], 2)[1][mixed.t() > 0].sum().backward()
            return table.grad.cpu()
        answer(torch.allclose(step("cpu"), step("sim"), atol=1e-6))
    """)


def test_sparse_gradients(on_device):
    assert on_device("""
        def step(device):
            torch.manual_seed(0)
            layer = torch.nn.Embedding(5, 3, sparse=True).to(device)
            layer(torch.tensor([1, 2, 2], device=device)).pow(2).sum().backward()
            torch.optim.SGD(layer.parameters(), lr=0.5).step()
            return layer.weight.grad.coalesce().cpu(), layer.weight.detach().cpu()
        cpu, sim_ = step("cpu"), step("sim")
        answer(torch.equal(cpu[0].to_dense(), sim_[0].to_dense()) and torch.equal(cpu[1], sim_[1]))
    """)


def test_views_outputs_and_resizes_keep_their_storage(on_device):
    assert on_device("""
        x = torch.arange(6.0, device="sim:1")
        view = x.view(2, 3).t()[1:]
        view.mul_(10)
        out = torch.empty(0, device="sim:1")
        torch.add(x, 1, out=out)
        kept = view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        x.squeeze_().unsqueeze_(0)
        answer([x.tolist(), out.tolist(), kept, list(x.shape), str(out.device)])
    """) == [
        [[0.0, 10.0, 20.0, 3.0, 40.0, 50.0]],
        [1.0, 11.0, 21.0, 4.0, 41.0, 51.0],
        True,
        [1, 6],
        "sim:1",
    ]


def test_tensors_on_two_devices_are_refused(on_device):
    messages = on_device("""
        messages = []
        for other in (torch.ones(2), torch.ones(2, device="sim:1")):
            try:
                torch.mm(torch.ones(2, 2, device="sim"), other.view(2, 1))
            except RuntimeError as error:
                messages.append(str(error))
        torch.ones(2, device="sim") * torch.tensor(2.0)  # a number of the CPU may take part
        answer(messages)
    """)
    start = "Expected all tensors to be on the same device, but found at least two devices, sim:0"
    assert messages == [f"{start} and cpu!", f"{start} and sim:1!"]


def test_index_and_device_contexts(on_device):
    assert on_device("""
        found = [torch.accelerator.device_count(), torch.accelerator.current_accelerator().type]
        with torch.sim.device(1):
            x = torch.ones(1, device="sim")
            found += [torch.accelerator.current_device_index(), str(x.device)]
        torch.accelerator.set_device_index(1)
        found.append(torch.sim.current_device())
        torch.set_default_device("sim:0")
        found += [str(torch.ones(1).device), torch.get_device_module("sim") is torch.sim]
        try:
            torch.ones(1, device="sim:2")
        except RuntimeError as error:
            found.append("invalid device ordinal" in str(error))
        answer(found)
    """) == [2, "sim", 1, "sim:1", 1, "sim:0", True, True]


# ---- time ----


def test_a_kernel_costs_a_fixed_time_and_its_bytes(on_device):
    nbytes = 4 * 1600 * 2  # it reads and writes 1600 floats
    elapsed = on_device("""
        x = torch.ones(1600, device="sim")
        start, end = (torch.Event("sim", enable_timing=True) for _ in range(2))
        torch.sin(x)  # the device is busy from here on
        start.record()
        for _ in range(3):
            torch.sin(x)
        end.record()
        end.synchronize()
        answer(start.elapsed_time(end))
    """)
    assert elapsed == 3 * (KERNEL + nbytes // RATE) / 1e6


def test_the_device_waits_for_the_host_and_the_host_for_the_device(on_device):
    start, host, gap = on_device(
        """
        x = torch.ones(8, device="sim")
        torch.accelerator.synchronize()
        start = sim.host_clock()
        x.sin().item()  # a launch, a kernel; another launch and read
        host = sim.host_clock() - start
        sim.host_work(50_000)
        with sim.log_kernels():
            before = sim.stream_clock()
            x.sin()
        answer([start, host, sim.kernels()[0].start_ns - before])
    """.replace("x.sin().item()", "x.sum().item()")
    )
    # The read begins when the kernel ends: 36 and 4 bytes cost 2 and 0 ns.
    assert (start > 0, host, gap) == (True, LAUNCH + 2 * KERNEL + 36 // RATE, 50_000 + LAUNCH)


def test_streams_work_at_the_same_time_and_events_order_them(on_device):
    alone, after = on_device("""
        x = torch.ones(160_000, device="sim")
        torch.accelerator.synchronize()
        side, event = torch.Stream("sim"), torch.Event("sim")
        x.sin()
        with side:
            assert torch.accelerator.current_stream() == side
            x.cos()
        alone = sim.stream_clock(side) - sim.stream_clock()
        event.record()
        side.wait_event(event)
        with side:
            before = max(sim.stream_clock(), sim.stream_clock(side))
            x.cos()
        answer([alone, sim.stream_clock(side) - before])
    """)
    assert alone == LAUNCH  # the second was submitted that much later
    assert after == KERNEL + 2 * 640_000 // RATE


def test_the_clocks_are_the_same_in_every_run(on_device):
    program = """
        torch.manual_seed(0)
        layers = torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        model = torch.nn.Sequential(*layers).to("sim")
        side = torch.Stream("sim")
        for _ in range(3):
            with side:
                loss = model(torch.ones(4, 8, device="sim")).sum()
            loss.backward()
        torch.accelerator.synchronize()
        answer([sim.host_clock(), sim.stream_clock(), sim.stream_clock(side)])
    """
    first = on_device(program)
    assert first[0] > 0
    assert [on_device(program) for _ in range(2)] == [first, first]


def test_elapsed_time_asks_for_events_that_are_over_and_have_times(on_device):
    assert on_device("""
        errors = []
        x = torch.ones(1000, device="sim")
        a, b, c = (torch.Event("sim", enable_timing=timing) for timing in (True, True, False))
        a.record(); x.sin(); b.record(); c.record()
        for other in (b, c):
            try:
                a.elapsed_time(other)
            except (RuntimeError, ValueError) as error:
                errors.append(str(error))
        queries = 1
        while not b.query():
            queries += 1
        answer([len(errors), queries > 1, a.elapsed_time(b) > 0])
    """) == [2, True, True]


# ---- waits ----


def test_every_read_of_the_host_is_counted_with_its_line(on_device):
    assert on_device("""
        x = torch.ones(3, device="sim")
        sim.clear()
        def read(): return x.sum().item()
        read()
        bool(x[0] > 0)
        x.cpu()
        x.nonzero()
        x[x > 0]
        torch.accelerator.synchronize()
        torch.tensor([1.0]).to("sim")
        x.to("cpu", non_blocking=True)
        x[x > 0] = 2.0
        x[torch.tensor([0, 1], device="sim")]
        with sim.ignore_waits():
            x.tolist()
        callers = sim.waits()[0].stack[:2]
        answer([
            [line.number for line in callers],
            *[[wait.kind, wait.op, wait.line.number] for wait in sim.waits()],
        ])
    """) == [
        [4, 5],
        ["host-read", "aten::item", 4],
        ["host-read", "aten::item", 6],
        ["copy-to-host", "aten::copy_", 7],
        ["host-read", "aten::nonzero", 8],
        ["host-read", "aten::nonzero", 9],
        ["synchronize", "device", 10],
        ["copy-to-device", "aten::copy_", 11],
        ["copy-to-device", "aten::copy_", 14],
    ]


def test_a_wait_in_backward_has_the_line_of_the_hook_or_of_the_call(on_device):
    assert on_device("""
        class Reads(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x.clone()
            @staticmethod
            def backward(ctx, gradient):
                gradient.sum().item()
                return gradient
        x = torch.ones(3, device="sim", requires_grad=True)
        loss = Reads.apply(x).pow(2)[x > 0].sum()
        sim.clear()
        loss.backward()
        answer([[wait.op, wait.line.number, wait.on_device_thread] for wait in sim.waits()])
    """) == [["aten::_index_put_impl_", 12, True], ["aten::item", 7, False]]


def test_the_strict_mode_raises_where_the_host_would_wait(on_device):
    assert on_device("""
        x = torch.ones(3, device="sim")
        refused = 0
        with sim.sync_debug_mode("error"):
            y = (x * 2).sum()
            for read in (y.item, x.cpu, x.nonzero, torch.accelerator.synchronize, lambda: bool(y)):
                try:
                    read()
                except RuntimeError as error:
                    refused += "synchronizing" in str(error)
            with sim.ignore_waits():
                value = y.item()
        answer([refused, value, y.item()])
    """) == [5, 6.0, 6.0]


# ---- copies that have not arrived ----


@pytest.mark.parametrize("wait", ["event.synchronize()", "torch.accelerator.synchronize()",
                                  "torch.accelerator.current_stream().synchronize()"])  # fmt: skip
def test_a_copy_to_the_host_arrives_when_it_was_waited_for(on_device, wait):
    before, after = on_device(f"""
        event = torch.Event("sim")
        values = [torch.tensor(each, device="sim") for each in ([1.0, 2.0], [3, 4], [True, False])]
        there = [torch.zeros(2, dtype=each.dtype, pin_memory=True) for each in values]
        for to, each in zip(there, values):
            to.copy_(each, non_blocking=True)
        event.record()
        before = [each.tolist() for each in there]
        before[0] = [number != number for number in before[0]]
        {wait}
        answer([before, [each.tolist() for each in there]])
    """)
    assert before == [[True, True], [2**63 - 1] * 2, [True, True]]
    assert after == [[1.0, 2.0], [3, 4], [True, False]]


def test_another_event_does_not_bring_a_copy(on_device):
    assert on_device("""
        side, event = torch.Stream("sim"), torch.Event("sim")
        event.record()
        x = torch.ones(2, device="sim")
        there = x.to("cpu", non_blocking=True)
        event.synchronize()
        side.synchronize()
        late = bool(there.isnan().all())
        back = there.to("sim", non_blocking=True)  # on the same stream, so after the copy
        with side:
            wrong = there.to("sim", non_blocking=True)
        torch.accelerator.synchronize()
        answer([late, back.tolist(), bool(wrong.isnan().all()), there.tolist(), sim.not_arrived()])
    """) == [True, [1.0, 1.0], True, [1.0, 1.0], 0]


def test_save_on_cpu_with_pinned_memory(on_device):
    assert on_device("""
        x = torch.arange(4.0, device="sim", requires_grad=True)
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            y = (x.exp() * x).sum()
        with sim.sync_debug_mode("error"):
            y.backward()
        expected = x.detach().exp() * (1 + x.detach())
        answer(torch.allclose(x.grad.cpu(), expected.cpu()))
    """)


def test_pinned_memory_is_known(on_device):
    assert on_device("""
        x = torch.ones(4)
        pinned = x.pin_memory()
        loader = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2, pin_memory=True)
        batches = [batch.is_pinned() for batch in loader]
        answer([x.is_pinned(), pinned.is_pinned(), pinned[2:].is_pinned(), batches])
    """) == [False, True, True, [True, True]]


# ---- order between streams ----


def test_a_race_names_both_lines_and_an_event_removes_it(on_device):
    assert on_device("""
        side = torch.Stream("sim")
        def races(ordered):
            sim.clear()
            x = torch.ones(4, device="sim")
            with sim.detect_races():
                x.mul_(2)
                if ordered:
                    side.wait_stream(torch.accelerator.current_stream())
                with side:
                    y = x.sin()
            torch.accelerator.synchronize()
            return [
                [it.kind, it.first_op, it.first[0].number, it.second_op, it.second[0].number]
                for it in sim.races()
            ]
        answer([races(False), races(True)])
    """) == [[["read-after-write", "aten::mul", 7, "aten::sin", 11]], []]


def test_writes_after_reads_and_other_parts_of_a_storage(on_device):
    assert on_device("""
        side = torch.Stream("sim")
        x = torch.ones(8, device="sim")
        torch.accelerator.synchronize()
        left, right = x[:4], x[4:]
        left.add_(1)
        with side:
            right.add_(1)
        none = len(sim.races())
        y = right.clone()
        with side:
            left.add_(1)
        answer([none, [race.kind for race in sim.races()]])
    """) == [0, ["read-after-write", "write-after-write"]]


def test_the_engine_orders_the_streams_of_forward_and_backward(on_device):
    assert (
        on_device("""
        side = torch.Stream("sim")
        w = torch.ones(4, device="sim", requires_grad=True)
        torch.accelerator.synchronize()
        for _ in range(2):
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                loss = (w.sin() * w).sum()
            torch.accelerator.current_stream().wait_stream(side)
            loss.backward()
            with torch.no_grad():
                w.sub_(w.grad)
        answer([race.kind for race in sim.races()])
    """)
        == []
    )


def test_memory_that_is_freed_while_a_stream_uses_it_spoils_what_was_computed(on_device):
    assert on_device("""
        def use(recorded):
            side = torch.Stream("sim")
            x = torch.ones(4, device="sim")
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                y = x * 2
            if recorded:
                x.record_stream(side)
            del x
            torch.accelerator.current_stream().wait_stream(side)
            return bool(y.isnan().all())
        first = [use(False), [race.kind for race in sim.races()]]
        sim.clear()
        answer([first, use(True), sim.races()])
    """) == [[True, ["freed-while-used"]], False, []]


# ---- memory ----


def test_freed_and_new_memory_holds_nan_and_addresses_come_again(on_device):
    assert on_device("""
        x = torch.empty(64, device="sim")
        new = bool(x.isnan().all())
        x.fill_(1)
        address = x.data_ptr()
        del x
        again = torch.empty(64, device="sim")
        answer([new, again.data_ptr() == address, bool(again.isnan().all())])
    """) == [True, True, True]


def test_statistics_count_tensors_in_blocks(on_device):
    assert on_device("""
        base = torch.sim.memory_allocated()
        x = torch.ones(1000, device="sim")
        y = x + x
        z = torch.ones(1, device="sim:1")
        held = torch.sim.memory_allocated() - base
        del y
        stats = torch.accelerator.memory_stats(0)
        torch.accelerator.reset_peak_memory_stats(0)
        answer([
            held, torch.sim.max_memory_allocated(), torch.sim.memory_allocated(1),
            torch.sim.memory_allocated() - base, stats["allocated_bytes.all.peak"],
            stats["requested_bytes.all.current"], stats["num_ooms"],
        ])
    """) == [8192, 4096, 512, 4096, 8192, 4000, 0]


def test_beyond_its_capacity_it_is_out_of_memory(on_device):
    message, ooms, after, peak = on_device("""
        sim.set_capacity(0, 1 << 20)
        x = torch.ones(1 << 17, device="sim")
        try:
            x * x + torch.ones(2 << 17, device="sim")
        except torch.OutOfMemoryError as error:
            message = str(error)
        torch.ones(1 << 20, device="sim:1")
        answer([
            message, torch.accelerator.memory_stats()["num_ooms"], torch.sim.memory_allocated(),
            torch.sim.max_memory_allocated() <= 1 << 20,
        ])
    """)
    assert message.startswith(
        "sim out of memory. Tried to allocate 1024.00 KiB. GPU 0 has a total capacity of "
        "1024.00 KiB of which 0 bytes is free. Including non-PyTorch memory, this process has "
        "1024.00 KiB memory in use. Of the allocated memory 1024.00 KiB is allocated by PyTorch, "
        "and 0 bytes is reserved by PyTorch but unallocated."
    )
    assert (ooms, after, peak) == (1, 1 << 19, True)


def test_cached_memory_is_given_back_before_it_is_out_of_memory(on_device):
    assert on_device("""
        sim.set_capacity(0, 1 << 20)
        x = torch.empty(3 << 16, device="sim")
        del x
        cached = torch.sim.memory_reserved()
        y = torch.empty(1 << 17, device="sim")
        retries = torch.accelerator.memory_stats()["num_alloc_retries"]
        answer([cached, torch.sim.memory_reserved(), retries])
    """) == [3 << 18, 1 << 19, 1]


# ---- random numbers, autocast, and what else programs do ----


def test_each_index_has_a_generator(on_device):
    assert on_device("""
        def draw(device):
            dropped = torch.nn.functional.dropout(torch.ones(16, device=device))
            return dropped.tolist() + torch.rand(4, device=device).tolist()
        found = []
        torch.manual_seed(1)
        cpu = torch.get_rng_state()
        first, other = draw("sim:0"), draw("sim:1")
        found.append(torch.equal(cpu, torch.get_rng_state()))  # the CPU's generator is not used
        torch.manual_seed(1)
        found += [draw("sim:1") == other, draw("sim:0") == first, draw("sim:0") == first]
        state = torch.sim.get_rng_state()
        a = draw("sim:0")
        torch.sim.set_rng_state(state)
        found.append(draw("sim:0") == a)
        with torch.random.fork_rng(devices=[0], device_type="sim"):
            b = draw("sim:0")
        found.append(draw("sim:0") == b)
        own = torch.Generator("sim").manual_seed(5)
        c = torch.randn(3, device="sim", generator=own).tolist()
        found.append(torch.randn(3, device="sim", generator=own.manual_seed(5)).tolist() == c)
        answer(found)
    """) == [True, True, True, False, True, True, True]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_preserves_the_state_of_the_generator(on_device, reentrant):
    assert on_device(f"""
        from torch.utils.checkpoint import checkpoint
        def run(x):
            return torch.nn.functional.dropout(x * 2).exp()
        x = torch.ones(64, device="sim", requires_grad=True)
        gradients = []
        for call in (run, lambda x: checkpoint(run, x, use_reentrant={reentrant})):
            torch.manual_seed(3)
            x.grad = None
            call(x).sum().backward()
            gradients.append(x.grad.cpu())
        answer(torch.equal(*gradients))
    """)


def test_autocast_has_the_usual_lists(on_device):
    assert on_device("""
        x, w = torch.randn(4, 4, device="sim"), torch.randn(4, 4, device="sim", requires_grad=True)
        half = torch.randn(4, 4, device="sim", dtype=torch.bfloat16)
        with torch.autocast("sim", dtype=torch.bfloat16):
            y = torch.nn.functional.linear(x, w)
            lower, wider = [y, x @ x], [y.exp(), torch.softmax(y, 1), y.sum(), y.norm()]
            mixed = [torch.dot(half[0], x[0]), half + half]
            try:
                torch.nn.functional.binary_cross_entropy(torch.sigmoid(x), x)
            except RuntimeError as error:
                refused = "unsafe to autocast" in str(error)
        y.float().sum().backward()
        answer([refused, *[str(each.dtype)[6:] for each in [w.grad, *lower, *wider, *mixed]]])
    """) == [
        True, "float32", "bfloat16", "bfloat16", "float32", "float32", "float32", "float32",
        "float32", "bfloat16",
    ]  # fmt: skip


def test_a_gradient_scaler_skips_a_step_with_infinite_gradients(on_device):
    assert on_device("""
        w = torch.ones(2, device="sim", requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.5)
        scaler = torch.amp.GradScaler("sim", init_scale=4.0)
        found = []
        for factor in (1.0, float("inf")):
            optimizer.zero_grad()
            scaler.scale((w * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append([w.tolist(), scaler.get_scale()])
        answer(found)
    """) == [[[0.5, 0.5], 4.0], [[0.5, 0.5], 2.0]]


def test_copies_files_and_fake_tensors(on_device):
    assert on_device("""
        import copy, io, pickle
        from torch._subclasses.fake_tensor import FakeTensorMode
        x = torch.arange(3.0, device="sim:1", requires_grad=True)
        file = io.BytesIO()
        torch.save({"x": x}, file)
        file.seek(0)
        loaded = torch.load(file)["x"]
        file.seek(0)
        mapped = torch.load(file, map_location="cpu")["x"]
        with FakeTensorMode():
            fake = torch.ones(2, device="sim") @ torch.ones(2, 3, device="sim")
        module = torch.nn.Linear(2, 2).to("sim:1")
        all_ = [copy.deepcopy(x), pickle.loads(pickle.dumps(x)), loaded, mapped]
        devices = [str(each.device) for each in (loaded, mapped, fake, module.weight)]
        answer([[each.tolist() == [0, 1, 2] for each in all_], devices, list(fake.shape)])
    """) == [[True] * 4, ["sim:1", "cpu", "sim:0", "sim:1"], [3]]


def test_an_error_in_backward_reaches_the_caller_and_ends_the_process_as_usual(on_device):
    assert on_device("""
        x = torch.ones(3, device="sim", requires_grad=True)
        y = x.exp()
        y.mul_(2)
        try:
            y.sum().backward()
        except RuntimeError as error:
            answer("modified by an inplace operation" in str(error))
    """)


def test_gradients_of_two_ranks_with_fsdp_and_with_tensor_parallel(tmp_path):
    program = """
        import os
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module,
        )
        from tests.accelerator import process_group

        rank = int(os.environ["RANK"])
        torch.accelerator.set_device_index(rank)
        process_group.init(rank, 2, os.environ["STORE"])
        mesh = init_device_mesh("sim", (2,))

        def model():
            torch.manual_seed(0)
            layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
            return torch.nn.Sequential(*layers).to("sim")

        def gradients(net):
            net(torch.arange(32.0, device="sim").view(4, 8) / 32).pow(2).sum().backward()
            full = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
                    for p in net.parameters()]
            return [each.cpu() for each in full]

        plain = gradients(model())
        sharded = model()
        for layer in sharded:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fsdp = gradients(fully_shard(sharded, mesh=mesh))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallel = gradients(parallelize_module(model(), mesh, plan))
        races = [race.kind for race in sim.races()]
        dist.destroy_process_group()
        answer([all(torch.allclose(a, b, atol=1e-5) for a, b in zip(plain, other))
                for other in (fsdp, parallel)] + races)
    """
    assert run_on_ranks(program, tmp_path, 2) == [[True, True], [True, True]]
