"""Pictures of compiled regions: columns, lanes, ribbons, recomputed ops, hooks, the strip."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree as ET

import make_log as m
import pytest
from make_compiled import Op, analysis_of, block, region_of

import autogradviz
from autogradviz import events as e
from autogradviz.cli import main
from autogradviz.errors import UnknownRegionError
from autogradviz.render.svg.compiled_region import render_compiled_svg
from autogradviz.render.svg.draw_graph import render_svg
from autogradviz.scene.build_scene import build_scene
from autogradviz.scene.compiled.columns_by_line_or_block import (
    MAX_BLOCKS,
    arrange_columns,
    saved_texts,
)
from autogradviz.scene.compiled.picture import READABLE_WIDTH
from autogradviz.scene.compiled.place_columns import recomputed_alive
from autogradviz.scene.compiled.tables import build_region_scene, describe_region
from autogradviz.scene.layout.coordinates import place
from autogradviz.trace_method_results.compiled_region_view import CompiledRegionView, choose_region

MLP = [
    Op("addmm", 3, nbytes=4000, saved="value"),
    Op("view", 3, nbytes=4000, arguments=("addmm",), recomputed="partitioner"),
    Op("gelu", 4, nbytes=4000),
    Op("mm", 5, saved="value", users=("addmm",)),
]
CHECKPOINTED = [
    Op("embedding", 2, saved="value", users=("h.0.norm",)),
    *block("h.0", checkpoint=3, recomputed="checkpoint"),
    *block("h.1"),
    Op("mm", 20, nbytes=2000, saved="value"),
]


def titles(columns):
    return [
        (column.block or column.location.lineno, [op.name for op in column.forward])
        for column in columns
    ]


def marks(scene, style, detail="lines"):
    pictures = [p for p in scene.tables.pictures if p.detail == detail] or scene.tables.pictures
    return [
        mark
        for mark in scene.tables.marks
        if mark.picture == pictures[0].index
        and re.sub(" (before|after|odd)$", "", mark.style) == style
        if mark.item >= 0 or mark.shape != "rect"  # not in the legend
    ]


def texts(scene, style, detail="lines"):
    return [mark.text for mark in marks(scene, style, detail)]


def test_line_of_a_region_separates_values_from_inputs_and_ops_from_views():
    mlp = region_of(*MLP, Op("tokens", 2, nbytes=500, saved="input", differentiable=False))
    figures = describe_region(mlp, 0, {}).subtitle.split(" · ")
    assert figures[3:] == ["5.0 kB + 500 B inputs saved", "1 view recomputed"]
    again = describe_region(region_of(*CHECKPOINTED), 0, {}).subtitle.split(" · ")
    assert again[3].endswith("kB saved")
    assert again[4].endswith(" recomputed")
    assert "view" not in again[4]


# --- columns --------------------------------------------------------------------------------


def test_columns_are_lines_in_the_order_of_the_forward():
    columns = arrange_columns(region_of(*MLP), "lines").columns
    assert titles(columns) == [(3, ["addmm", "view"]), (4, ["gelu"]), (5, ["mm"])]


def test_backward_ops_are_below_the_forward_op_that_they_differentiate():
    arranged = arrange_columns(region_of(*MLP), "lines")
    assert [[op.name for op in column.backward] for column in arranged.columns] == [
        ["view", "view_backward", "addmm_backward"],
        ["gelu_backward"],
        ["mm_backward"],
    ]
    assert arranged.backward_column["mm_backward"] == 2


def test_blocks_detail_has_one_column_for_each_numbered_module():
    columns = arrange_columns(region_of(*CHECKPOINTED), "blocks").columns
    assert [column.block for column in columns] == ["", "h.0", "h.1", ""]
    assert [column.lines for column in columns] == [1, 2, 2, 1]
    assert columns[1].checkpoint == 3


def test_identical_blocks_are_folded_into_the_first():
    ops = [op for i in range(12) for op in block(f"h.{i}")]
    arranged = arrange_columns(region_of(*ops), "lines")
    assert [(c.block, c.last_block, c.repeat) for c in arranged.columns] == [
        ("h.0", "h.11", 12)
    ] * 2
    assert arranged.backward_column["h.7.gelu_backward"] == 1


def test_blocks_with_different_sizes_are_not_folded():
    ops = [*block("h.0"), *block("h.1"), Op("h.1.mul", 12, module="h.1")]
    columns = arrange_columns(region_of(*ops), "blocks").columns
    assert [column.repeat for column in columns] == [1, 1]


def test_a_sum_of_gradients_belongs_to_what_it_adds():
    addition = Op("add", 5, nbytes=10)
    extra = m.fact(
        e.OpCompiled,
        compiled_region_id=1,
        graph="backward",
        position=9,
        op_name="add_grads",
        op_kind="call_function",
        target="aten.add.Tensor",
        filename="net.py",
        lineno=77,
        argument_names=("gelu_backward",),
        sums_gradients=True,
    )
    arranged = arrange_columns(region_of(*MLP, addition, more=[extra]), "lines")
    assert arranged.backward_column["add_grads"] == 1


def test_many_lines_are_merged_with_their_neighbors():
    ops = [Op(f"op{i}", i + 1) for i in range(100)]
    arranged = arrange_columns(region_of(*ops), "blocks")
    assert len(arranged.columns) <= MAX_BLOCKS
    assert sum(len(column.forward) for column in arranged.columns) == 100
    assert set(arranged.backward_column.values()) == set(range(len(arranged.columns)))


# --- recomputed bytes -----------------------------------------------------------------------


def test_recomputed_bytes_are_alive_until_their_last_use():
    ops = [
        Op("exp", 1, nbytes=100, recomputed="checkpoint"),
        Op("mul", 2, nbytes=10, recomputed="checkpoint", arguments=("exp",)),
        Op("sin", 3, nbytes=1),
    ]
    region = region_of(*ops)
    names = [op.name for op in region.backward_ops]
    assert names == ["sin_backward", "mul", "mul_backward", "exp", "exp_backward"]
    assert recomputed_alive(region) == [0, 10, 0, 100, 0]


def test_a_recomputed_view_keeps_its_storage_alive():
    ops = [
        Op("sin_backward", 3, differentiable=False, arguments=("view",), recomputed="checkpoint"),
        Op(
            "view", 2, nbytes=100, arguments=("exp",), recomputed="checkpoint", differentiable=False
        ),
        Op("exp", 1, nbytes=100, recomputed="checkpoint", differentiable=False),
    ]
    region = region_of(*ops)
    assert [op.name for op in region.backward_ops] == ["exp", "view", "sin_backward"]
    assert recomputed_alive(region) == [100, 100, 1100]


# --- marks ----------------------------------------------------------------------------------


def test_forward_is_above_saved_values_and_these_above_the_backward():
    scene = build_region_scene(region_of(*MLP))
    lowest_forward = max(mark.y + mark.height for mark in marks(scene, "box forward"))
    chips = [mark.y for mark in marks(scene, "chip value")]
    assert lowest_forward < min(chips)
    assert max(chips) < min(mark.y for mark in marks(scene, "box backward"))


def test_ribbons_are_as_thick_as_their_bytes():
    scene = build_region_scene(region_of(*MLP))
    thick = {
        text: mark.width
        for text, mark in zip(texts(scene, "label"), marks(scene, "ribbon value"), strict=True)
    }
    assert thick["addmm · 4.0 kB"] == pytest.approx(4 * thick["mm · 1.0 kB"])


def test_bytes_of_identical_blocks_are_those_of_each():
    first, second = (block(name, saved="value") for name in ("h.0", "h.1"))
    other = Op("h.2.mul", 30, nbytes=500, saved="value", module="h.2")
    folded = build_region_scene(region_of(*first, *second, other))
    labels = texts(folded, "label", "blocks")
    alone = texts(build_region_scene(region_of(*first)), "label", "blocks")
    assert [label for label in labels if label.endswith(" per block")] == [f"{alone[0]} per block"]
    assert len(labels) == 2


def test_the_legend_is_what_follows_the_picture():
    tables = build_region_scene(region_of(*CHECKPOINTED)).tables
    ends = [each.legend for each in tables.pictures[1:]] + [len(tables.marks)]
    for picture, end in zip(tables.pictures, ends, strict=True):
        marks = [
            (at, each) for at, each in enumerate(tables.marks) if each.picture == picture.index
        ]
        legend = [each.text for at, each in marks if at >= picture.legend and each.shape == "text"]
        assert legend[:2] == ["forward op", "backward op"]
        assert all(each.item < 0 for at, each in marks if at >= picture.legend)
        assert picture.legend < end


def test_a_ribbon_ends_in_the_column_that_needs_its_value():
    scene = build_region_scene(region_of(*MLP))
    [_, ribbon] = sorted(marks(scene, "ribbon value"), key=lambda mark: -mark.width)
    start, end = float(ribbon.text[1:].split()[0]), float(ribbon.text.split()[-2])
    boxes = {t.text: t.x for t in marks(scene, "on forward")}
    assert abs(start - boxes["mm"]) < abs(start - boxes["addmm"])
    assert abs(end - boxes["addmm"]) < abs(end - boxes["mm"])


def test_recomputed_ops_are_hollow_twins_before_the_backward_of_their_column():
    scene = build_region_scene(region_of(*CHECKPOINTED))
    twins = marks(scene, "box recomputed")
    assert texts(scene, "on recomputed") == ["norm", "addmm", "gelu"]
    first_backward = min(mark.y for mark in marks(scene, "box backward") if mark.x == twins[0].x)
    assert twins[0].y < first_backward
    assert texts(scene, "recompute-text") == ["checkpoint"]
    assert texts(scene, "curve-label") == ["peak 4.0 kB"]


def test_views_and_recomputed_views_are_counted():
    scene = build_region_scene(region_of(*MLP))
    assert texts(scene, "on note") == ["1 view"]
    assert texts(scene, "on note recomputed") == ["1 view recomputed"]


def test_hooks_are_boxes_at_both_ends_and_the_ribbon_has_two_widths():
    scene = build_region_scene(region_of(*MLP, hooks=[("addmm", 1000)]))
    assert len(marks(scene, "hook")) == 2
    widths = {mark.style: mark.width for mark in marks(scene, "ribbon value")}
    assert widths["ribbon value before"] == pytest.approx(4 * widths["ribbon value after"])
    assert "addmm · 4.0 kB → 1.0 kB" in texts(scene, "label")
    assert scene.tables.pictures[0].hooks
    [slot] = [slot for slot in scene.tables.slots if slot.name == "addmm"]
    assert slot.hook == "Packed by to_copy (4.0 kB → 1.0 kB), unpacked by to_copy"


def test_a_long_name_is_elided_to_the_width_of_its_column():
    name = "a_very_long_operator_name_that_nobody_can_read_in_a_narrow_column"
    scene = build_region_scene(region_of(Op(name, 1, saved="value"), Op("mm", 2)))
    first, second = sorted(marks(scene, "box forward"), key=lambda mark: mark.x)
    assert first.x + first.width <= second.x
    assert texts(scene, "on forward")[0].endswith("…")


def test_columns_do_not_overlap():
    scene = build_region_scene(region_of(*CHECKPOINTED))
    for detail in ("blocks", "lines"):
        lefts = sorted({(mark.x, mark.width) for mark in marks(scene, "box backward", detail)})
        for (x, width), (next_x, _) in itertools.pairwise(lefts):
            assert x + width <= next_x


def test_every_saved_value_is_in_a_ribbon():
    scene = build_region_scene(region_of(*CHECKPOINTED))
    for picture in scene.tables.pictures:
        items = {
            mark.item
            for mark in scene.tables.marks
            if mark.picture == picture.index and mark.style.startswith("chip ") and mark.item >= 0
        }
        drawn = {slot for item in items for slot in scene.tables.items[item].slots}
        assert drawn == set(range(len(scene.tables.slots)))


def test_inductor_regions_are_labeled_as_planned():
    assert "planned" in build_region_scene(region_of(*MLP, backend="inductor")).region.planned
    assert build_region_scene(region_of(*MLP)).region.planned == ""


def test_a_wide_region_is_first_shown_by_blocks():
    ops = [op for i in range(9) for op in block(f"h.{i}", line=10 * i)]
    pictures = build_region_scene(region_of(*ops)).tables.pictures
    assert [(p.detail, p.initial) for p in pictures] == [("blocks", True), ("lines", False)]


# --- the strip ------------------------------------------------------------------------------


def test_strip_lists_regions_with_graph_breaks_and_recompilations():
    more = [
        m.fact(
            e.CompiledGraphCaptured,
            compile_id="0/0",
            code_name="forward",
            graph_break=True,
            reason="Unsupported: print\nHint: move it out of the function",
            filename="net.py",
            lineno=7,
            text="print(x)",
        ),
        m.fact(
            e.Recompiled,
            compile_id="0/1",
            failed_compile_id="0/0",
            guard="self.scale == 0.5",
            code_name="forward",
            code_file="net.py",
            code_line=2,
            recompile_count=1,
            recompile_limit=8,
        ),
    ]
    scene = build_scene(analysis_of(*MLP, more=more), ())
    assert [(step.kind, step.title, step.lineno) for step in scene.compiled_steps] == [
        ("region", "forward [0/0]", 99),
        ("break", "Unsupported: print", 7),
        ("recompile", "self.scale == 0.5", 2),
    ]
    assert scene.compiled_steps[1].hint == "move it out of the function"
    assert "1 of at most 8" in scene.compiled_steps[2].hint


def test_compilations_of_a_function_are_a_tree_of_the_guards_that_failed():
    def again(number, failed, guard):
        return m.fact(
            e.Recompiled,
            compile_id=f"0/{number}",
            failed_compile_id=f"0/{failed}",
            guard=guard,
            code_name="forward",
            recompile_count=number,
            recompile_limit=8,
        )

    facts = (again(1, 0, "n == 1"), again(2, 1, "n == 2"), again(3, 0, "n == 3"))
    analysis = analysis_of(*MLP, more=facts)
    (region,) = build_scene(analysis, ()).compiled_regions
    assert region.guards == (
        "0/0 (this region)",
        "  0/1: n == 1 failed",
        "    0/2: n == 2 failed",
        "  0/3: n == 3 failed",
    )
    (alone,) = build_scene(analysis_of(*MLP), ()).compiled_regions
    assert alone.guards == ()
    header = " ".join(saved_texts(analysis.compiled_regions[0]))
    assert region.saved == header, "the list says what the header of the picture says"


# --- inside the graph -----------------------------------------------------------------------


def run_of(node_id):
    return m.fact(
        e.RegionRan,
        compiled_region_id=1,
        node_id=node_id,
        tensor_ids=(),
        saved_versions=(),
        early=False,
        at="t.py:5",
    )


def graph_with_a_region(*ops):
    """Return the analysis of sum ← compiled region ← exp."""
    return analysis_of(
        *(ops or MLP),
        more=[
            m.node(1, "ExpBackward0", nr=1),
            m.node(2, "CompiledFunctionBackward", nr=2, to=[1]),
            m.node(3, "SumBackward0", nr=3, to=[2]),
            run_of(2),
            m.backward(1, roots=(3,)),
        ],
    )


def region_group(scene):
    [group] = [group for group in scene.groups if group.kind == "compiled"]
    return group


def test_node_of_a_compiled_region_is_a_closed_group_with_the_region_inside():
    scene = build_scene(graph_with_a_region(), (), depth=9)
    group = region_group(scene)
    assert (group.label, group.type_name) == ("forward [0/0]", "CompiledFunctionBackward")
    assert (group.open, group.node_count) == (False, 1)
    [picture] = [each for each in scene.compiled_pictures if each.initial]
    assert group.picture_width == picture.width + 24
    assert group.picture_height == picture.height + 24


@pytest.mark.parametrize("graph_only", [False, True])
def test_region_that_says_more_than_the_graph_is_open_in_the_first_picture(graph_only):
    scene = build_scene(graph_with_a_region(), (), graph_only=graph_only)
    assert region_group(scene).open
    assert "gelu_backward" in render_svg(scene)
    small = build_scene(graph_with_a_region(Op("mm", 3)), (), graph_only=graph_only)
    assert not region_group(small).open


def test_region_that_several_nodes_run_opens_once():
    several = analysis_of(
        *MLP,
        more=[
            m.node(1, "CompiledFunctionBackward", nr=1),
            m.node(2, "CompiledFunctionBackward", nr=2, to=[1]),
            run_of(1),
            run_of(2),
            m.backward(1, roots=(2,)),
        ],
    )
    opened = [g.open for g in build_scene(several, ()).groups if g.kind == "compiled"]
    assert opened == [True, False]


def test_identical_compiled_blocks_are_folded():
    blocks = [
        [
            m.module(at, f"h.{at}", "Block"),
            m.entered_module(at, at, nr=at),
            m.exited_module(at, nr=at + 1),
            m.node(at, "CompiledFunctionBackward", nr=at, to=[at - 1] if at > 1 else []),
            run_of(at),
        ]
        for at in (1, 2, 3)
    ]
    more = [*itertools.chain.from_iterable(blocks), m.backward(1, roots=(3,))]
    groups = build_scene(analysis_of(*MLP, more=more), ()).groups
    assert [(g.kind, g.label, g.repeat, g.open) for g in groups[:5]] == [
        ("root", "h", 1, True),
        ("repeat", "h.1–3", 3, True),
        ("module", "h.1", 1, True),
        ("compiled", "forward [0/0]", 1, True),
        ("repeat", "h.2–3", 2, False),
    ]


def test_wide_region_opens_with_neighboring_columns_merged():
    wide = graph_with_a_region(*[Op("mm", 3 + i) for i in range(60)])
    scene = build_scene(wide, ())
    assert region_group(scene).open
    [initial] = [picture for picture in scene.compiled_pictures if picture.initial]
    assert initial.detail == "blocks"
    assert initial.width <= READABLE_WIDTH


def test_lines_outside_of_blocks_are_merged_before_blocks():
    ops = [Op("mm", 30), Op("exp", 31), *block("h.0"), Op("mm", 40), Op("sum", 41)]
    columns = arrange_columns(region_of(*ops), "blocks", 3).columns
    assert [column.block for column in columns] == ["", "h.0", ""]
    assert [column.lines for column in columns][::2] == [2, 2]


def test_closed_region_says_how_many_ops_it_has():
    group = region_group(build_scene(graph_with_a_region(), (), depth=9))
    assert group.contents == "4 forward + 5 backward ops"
    again = Op("exp", 6, recomputed="partitioner")
    scene = build_scene(graph_with_a_region(*MLP, again), (), depth=9)
    contents = region_group(scene).contents
    assert contents == "5 forward + 7 backward ops, 1 recomputed"
    text = render_svg(scene)
    assert contents in text
    assert "gelu_backward" not in text


@pytest.mark.parametrize("name", ["forward [0/0]", "0/0", "forward"])
def test_region_opens_inside_the_graph_by_its_name(name):
    scene = build_scene(graph_with_a_region(), (), opened=(name,), graph_only=True)
    group = region_group(scene)
    [box] = [b for b in place(scene, {group.index}).boxes if b.kind == "node" and b.ref == 1]
    assert group.open
    assert (box.width, box.height) == (group.picture_width, group.picture_height)
    text = render_svg(scene)
    assert "Forward" in text
    assert "gelu_backward" in text
    assert "gelu_backward" not in render_svg(scene, open_groups=())
    assert ET.fromstring(text).tag.endswith("svg")


def test_only_opened_regions_are_drawn_in_a_picture_of_the_graph():
    scene = build_scene(graph_with_a_region(), (), depth=9, graph_only=True)
    assert scene.compiled_marks == ()
    assert region_group(scene).picture_width == 0


def test_unknown_name_to_open_is_an_error():
    with pytest.raises(ValueError, match=r"'down'.* no compiled region has this name"):
        build_scene(graph_with_a_region(), (), opened=("down",))


# --- SVG and API ----------------------------------------------------------------------------


def test_region_with_a_checkpoint_equals_the_golden_file(golden):
    golden("compiled.svg", render_compiled_svg(build_region_scene(region_of(*CHECKPOINTED))))


def test_region_with_hooks_in_dark_theme_equals_the_golden_file(golden):
    scene = build_region_scene(region_of(*MLP, hooks=[("addmm", 1000)]))
    golden("compiled-hooks-dark.svg", render_compiled_svg(scene, theme="dark"))


def test_picture_is_well_formed_whatever_the_names_are():
    hostile = "</title><script>alert(1)</script>\"'&\x00"
    svg = CompiledRegionView(region_of(Op(hostile, 1, saved="value", target="x<y&z"))).svg()
    ET.fromstring(svg)
    assert "<script" not in svg


def test_region_is_chosen_by_name_position_or_size():
    region = region_of(*MLP)
    for choice in (None, 0, "forward", "forward [0/0]", "0/0"):
        assert choose_region([region], choice) is region
    for choice in ("other", 1, -1):
        with pytest.raises(UnknownRegionError, match=r"forward \[0/0\]"):
            choose_region([region], choice)
    with pytest.raises(UnknownRegionError, match="several"):
        choose_region([region, region], "forward")
    with pytest.raises(UnknownRegionError, match=r"torch\.compile"):
        choose_region([], None)


def test_command_line_draws_a_region_and_names_those_that_exist(tmp_path, capsys):
    trace = autogradviz.Trace(analysis_of(*MLP).log)
    trace.save(tmp_path / "step.agv")
    picture = tmp_path / "region.svg"
    command = ["svg", str(tmp_path / "step.agv"), "-o", str(picture)]
    assert main([*command, "--region", "forward [0/0]", "--theme", "dark"]) == 0
    expected = trace.compiled_graph("forward [0/0]").svg(theme="dark")
    assert picture.read_text(encoding="utf-8") == expected
    assert main([*command, "--region", "backward"]) != 0
    assert "forward [0/0]" in capsys.readouterr().err
