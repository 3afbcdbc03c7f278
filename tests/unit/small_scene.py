"""A hand-written scene: one module with one node."""

from __future__ import annotations

from autogradviz.scene.schema import Cell, Scene, SceneGroup, SceneNode, SceneSummary


def small_summary(**changes):
    summary = {
        "title": "Small",
        "root": "",
        "subtitle": "1 node",
        "torch_version": "2.13.0",
        "nodes": 1,
        "edges": 0,
        "ops": 1,
        "events": 3,
        "storages": 0,
        "storage_rows": 0,
        "spans": 0,
        "saved_nbytes": 0,
        "recomputed_nbytes": 0,
        "released_nbytes": 0,
        "held_nbytes": 0,
        "offloaded_nbytes": 0,
        "peak_nbytes": 0,
        "end_ns": 1_000,
        "backwards": 1,
        "regions": 0,
        "recomputations": 0,
        "error_type": "",
        "error_message": "",
        "notices": (),
    }
    return SceneSummary(**(summary | changes))


def small_scene(*, name="ExpBackward0", **summary):
    node = SceneNode(
        index=0,
        node_id=7,
        group=0,
        op="exp",
        name=name,
        module="",
        sequence_nr=3,
        filename="train.py",
        lineno=12,
        state="ran",
        error=False,
        writes=False,
        recomputes=0,
        runs=1,
        duration_ns=500,
        shape="4",
        compact=False,
        op_width=60.0,
        name_width=120.0,
        left_width=0.0,
        right_width=0.0,
    )
    root = SceneGroup(
        index=0,
        parent=-1,
        kind="root",
        label="Small",
        type_name="Small",
        path="",
        depth=0,
        node_count=1,
        nbytes=0,
        recomputed_nbytes=0,
        shared_nbytes=0,
        peak_nbytes=0,
        repeat=1,
        checkpointed=False,
        recomputes=0,
        state="ran",
        error=False,
        open=True,
        width=100.0,
        header_width=0.0,
        left_width=0.0,
        right_width=0.0,
        cells=(Cell(kind="node", ref=0),),
        rows=((0,),),
        links=(),
    )
    return Scene(
        summary=small_summary(**summary),
        groups=(root,),
        nodes=(node,),
        edges=(),
        saved_badges=(),
        parameter_badges=(),
        findings=(),
        regions=(),
        diffs=(),
        spans=(),
        memory=(),
        lines=(),
    )
