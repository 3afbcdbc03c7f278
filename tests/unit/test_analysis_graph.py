"""Nodes: their ops, modules, order and state."""

from __future__ import annotations

from make_log import (
    accumulated,
    backward,
    backward_ended,
    entered_module,
    exited_module,
    finished,
    leaf,
    make_log,
    module,
    node,
    op,
    parameter,
    raised,
    ran,
    released,
    saved,
    started,
    tensor,
    unpacked,
)

from autogradviz.analysis import Analysis, Edge, SourceLocation


def graph_of(*facts):
    return Analysis(make_log(*facts)).graph


def line(text):
    filename, _, lineno = text.rpartition(":")
    return SourceLocation(filename=filename, lineno=int(lineno), function="forward", text="")


def states(graph):
    return {node_id: each.state for node_id, each in graph.nodes.items()}


def in_creation_order(graph):
    return sorted(graph.nodes, key=lambda node_id: graph.nodes[node_id].order)


def test_node_belongs_to_the_op_with_its_number():
    model = Analysis(
        make_log(
            op("mul", (2,), inputs=(1,), nr=7, at=("torch/nn/functional.py:9", "train.py:4")),
            node(1, "MulBackward0", nr=7),
        )
    )
    (mul,) = model.ops
    created = model.graph.nodes[1]
    assert (mul.name, mul.overload, mul.node_id) == ("mul", "aten.mul.default", 1)
    assert created.op is mul
    assert created.location == line("train.py:4")


def test_node_name_decides_between_ops_with_the_same_number():
    graph = graph_of(
        op("exp", (2,), nr=3, thread=1, at="worker.py:1"),
        op("native_layer_norm", (3,), nr=3, thread=2, at="worker.py:2"),
        node(1, "NativeLayerNormBackward0", nr=3),
        node(2, "ExpBackward0", nr=3),
    )
    assert {i: str(n.location) for i, n in graph.nodes.items()} == {
        1: "worker.py:2",
        2: "worker.py:1",
    }
    assert [graph.nodes[i].thread for i in (1, 2)] == [2, 1]


def test_op_that_shares_only_the_number_is_not_assigned():
    graph = graph_of(op("exp", (2,), nr=3, thread=1), node(1, "MyFunctionBackward", nr=3))
    assert graph.nodes[1].op is None


def test_write_into_a_view_created_the_node_of_the_base():
    graph = graph_of(
        op("copy_", (1,), nr=4, at="m.py:2"),
        node(1, "CopySlices", nr=5),
        node(2, "AsStridedBackward0", nr=6),
    )
    assert {i: str(n.location) for i, n in graph.nodes.items()} == {1: "m.py:2", 2: "None"}


def test_node_without_an_op_belongs_to_the_module_call_around_its_number():
    graph = graph_of(
        module(0, "", "Net"),
        module(1, "fc"),
        entered_module(1, 0, nr=0),
        entered_module(2, 1, nr=2, parent=1),
        exited_module(2, nr=4),
        exited_module(1, nr=6),
        module(2, "head"),
        entered_module(3, 2, nr=6),
        [node(nr, "FnBackward", nr=nr) for nr in range(1, 8)],
    )
    assert [graph.nodes[nr].module for nr in range(1, 8)] == [
        "",
        "fc",
        "fc",
        "",
        "",
        "head",
        "head",
    ]


def test_module_call_of_the_op_takes_precedence():
    graph = graph_of(
        module(0, "a"),
        module(1, "b"),
        entered_module(1, 0, nr=0),
        entered_module(2, 1, nr=0, parent=1),
        op("mul", (2,), nr=0, call=1),
        node(1, "MulBackward0", nr=0),
    )
    assert graph.nodes[1].module == "a"


def test_leaf_has_the_name_and_module_of_its_parameter_or_of_its_base():
    graph = graph_of(
        module(1, "fc"),
        tensor(5),
        tensor(6, (4, 2), storage=5),
        parameter(5, "fc.weight", module=1),
        leaf(1, 5),
        leaf(2, 6),
        leaf(3, 7),
        backward(),
        accumulated(1, 5),
        backward_ended(),
    )
    assert [
        (n.parameter.name, n.module, n.parameter.accumulated) for n in graph.nodes.values()
    ] == [
        ("fc.weight", "fc", True),
        ("fc.weight", "fc", False),
        ("", "", False),
    ]


def test_leaf_precedes_its_first_user():
    graph = graph_of(
        node(1, "AddBackward0", nr=5, to=(2, 3)),
        node(2, "MulBackward0", nr=4, to=(3, 4)),
        leaf(3, 1),
        leaf(4, 2),
        node(5, "ExpBackward0", nr=1, to=(6,)),
        leaf(6, 3),
    )
    assert in_creation_order(graph) == [6, 5, 3, 4, 2, 1]


def test_nodes_of_threads_are_ordered_by_their_ops():
    graph = graph_of(
        op("mul", (1,), nr=90, thread=0),
        op("exp", (2,), nr=0, thread=1),
        op("sin", (3,), nr=91, thread=0),
        node(3, "SinBackward0", nr=91),
        node(2, "ExpBackward0", nr=0),
        node(1, "MulBackward0", nr=90),
    )
    assert in_creation_order(graph) == [1, 2, 3]


def test_no_operator_of_pytorch_creates_the_node_of_a_custom_function():
    facts = (
        op("mul", (1,), nr=0),  # of a value that no loss uses
        op("mylib.scale.default", (2,), nr=1),
        node(1, "ScaleBackward", nr=0, to=(2,), thread=7),  # of a thread that is not recorded
        node(2, "GeneratedBackwardFor_mylib_scale_defaultBackward", nr=1),
        node(3, "AccumulateGrad"),
        node(4, "DivBackwards", nr=2),
    )
    analysis = Analysis(make_log(*facts))
    assert list(analysis.op_of_node) == [2]
    assert analysis.custom_functions == {
        1: "Scale",
        2: "GeneratedBackwardFor_mylib_scale_default",
    }


def test_edges_to_unknown_nodes_are_omitted():
    graph = graph_of(
        node(1, "AddBackward0", nr=1, to=(2, -1, (3, 1), 99)),
        node(2, "ExpBackward0", nr=0),
        leaf(3, 1),
    )
    assert graph.edges == (
        Edge(source=1, target=2, output=0, input=0),
        Edge(source=1, target=3, output=2, input=1),
    )


def test_roots_of_backwards_precede_other_roots():
    graph = graph_of(
        node(1, "A", nr=3),
        node(2, "B", nr=2, to=(3,)),
        node(3, "C", nr=1),
        backward(roots=(3,)),
    )
    assert graph.roots == (3, 1, 2)


def test_runs_and_their_durations_are_summed():
    graph = graph_of(
        node(1, "A", nr=1), backward(), ran(1), backward_ended(), backward(2), ran(1, backward=2)
    )
    assert (graph.nodes[1].state, graph.nodes[1].runs, graph.nodes[1].duration_ns) == (
        "ran",
        2,
        2000,
    )


def test_unfinished_node_of_a_failed_backward_is_failed():
    graph = graph_of(
        [node(i, "A", nr=i) for i in (1, 2, 3)],
        backward(),
        ran(3),
        started(2),
        backward_ended(failed=True),
    )
    assert states(graph) == {1: "not_run", 2: "failed", 3: "ran"}
    # It ran until the exception left its backward.
    assert [graph.nodes[i].duration_ns > 0 for i in (1, 2, 3)] == [False, True, True]


def test_innermost_unfinished_node_of_nested_backwards_is_failed():
    graph = graph_of(
        [node(i, "A", nr=i) for i in (1, 2)],
        backward(1),
        started(2, backward=1),
        backward(2, parent=1),
        started(1, backward=2),
        backward_ended(2, failed=True),
        backward_ended(1, failed=True),
    )
    assert states(graph) == {1: "failed", 2: "not_run"}


def test_failed_node_is_the_node_of_the_error():
    graph = graph_of(
        [node(i, "A", nr=i) for i in (1, 2)],
        backward(1),
        started(1),
        started(2, thread=1),
        backward_ended(1, failed=True),
        raised("RuntimeError", node=1, backward=1),
    )
    assert states(graph) == {1: "failed", 2: "not_run"}


def test_node_that_ran_and_then_failed_is_failed():
    graph = graph_of(
        node(1, "A", nr=1),
        backward(1),
        ran(1),
        backward_ended(1),
        backward(2),
        started(1, backward=2),
        backward_ended(2, failed=True),
    )
    assert (states(graph), graph.nodes[1].runs) == ({1: "failed"}, 1)


def test_unfinished_node_of_a_successful_backward_is_not_failed():
    graph = graph_of(node(1, "A", nr=1), backward(), started(1), backward_ended())
    assert states(graph) == {1: "not_run"}


def test_node_lists_its_saved_tensors():
    model = Analysis(
        make_log(
            op("mul", (3,), inputs=(1, 2), nr=4, at="train.py:4"),
            node(1, "MulBackward0", nr=4),
            saved(1, 1, node=1, slot="self", nr=4),
            saved(2, 2, node=1, slot="other", nr=4),
            backward(),
            started(1),
            unpacked(1, node=1, seen=1),
            finished(1),
            released(1),
        )
    )
    first, second = model.graph.nodes[1].saved
    assert [(s.slot, s.saved_seq, s.released_seq, s.broken) for s in (first, second)] == [
        ("self", 1, 9, True),
        ("other", 1, None, False),
    ]
    assert (first.unpacks[0].backward_id, first.location) == (1, line("train.py:4"))


def test_deep_chain_needs_no_recursion():
    depth = 5_000
    graph = graph_of([node(i, "A", nr=i, to=(i - 1,)) for i in range(depth, 0, -1)])
    assert in_creation_order(graph) == list(range(1, depth + 1))


def test_log_without_ends_and_definitions_is_analyzed():
    facts = [
        entered_module(1, 8, nr=0),
        node(1, "A", nr=0, to=(5,)),
        leaf(2, 50),
        saved(1, 60, node=7, nr=3),
        unpacked(9),
        released(9),
        backward(3, parent=2),
        started(12, backward=3),
    ]
    model = Analysis(make_log(facts))
    assert states(model.graph) == {1: "not_run", 2: "not_run"}
    assert model.graph.edges == ()
    assert model.tensors[1234].shape == ()
    assert [span.kind for span in model.timeline.spans] == ["backward", "module", "node"]
    assert (model.regions, model.error, model.notices) == ((), None, ())
