"""Hand-written compiled regions in compact notation.

``region_of(Op("addmm", line=3, saves="value", users=["mm"]), ...)`` is the region of a program
that was compiled with aot_eager.
"""

from __future__ import annotations

from dataclasses import dataclass

import make_log as m

from autogradviz import events as e
from autogradviz.analysis import Analysis

REGION = 1


@dataclass
class Op:
    """One op of the forward; its backward is one op ``name_backward`` on the same line."""

    name: str
    line: int
    module: str = ""
    nbytes: int = 1000
    saved: str = ""  # kind of the slot
    users: tuple[str, ...] = ()  # ops whose backward needs the saved value; by default its own
    checkpoint: int | None = None
    recomputed: str = ""  # the cause
    differentiable: bool = True
    target: str = ""
    arguments: tuple[str, ...] = ()


def compiled_op(graph, position, name, target, op, **fields):
    return m.fact(
        e.OpCompiled,
        compiled_region_id=REGION,
        graph=graph,
        position=position,
        op_name=name,
        op_kind="call_function",
        target=target,
        shape=(4, 8),
        dtype="float32",
        nbytes=op.nbytes,
        filename="net.py" if op.line else "",
        lineno=op.line,
        function="forward",
        text=f"line {op.line}",
        module_name=op.module,
        module_type="Block" if op.module else "",
        checkpoint_number=op.checkpoint,
        **fields,
    )


def compiled_facts(*ops, backend="aot_eager", hooks=(), breaks=(), more=()):
    """Return the events of one region; ``hooks`` are pairs of a value and its packed bytes."""
    facts = [
        m.fact(e.CompileStarted, compile_id="0/0", trigger="dynamo"),
        m.fact(
            e.CompiledGraphCaptured,
            compile_id="0/0",
            code_name="forward",
            filename="net.py",
            lineno=99,
            text="return loss",
        ),
        m.fact(
            e.RegionCompiled,
            compiled_region_id=REGION,
            compile_id="0/0",
            backend=backend,
            source="objects",
            differentiable=True,
        ),
    ]
    packed = dict(hooks)
    slot = {op.name: f"{op.name}_hook_0" if op.name in packed else op.name for op in ops}
    for position, op in enumerate(ops):
        target = f"aten.{op.target or op.name.rpartition('.')[2]}.default"
        facts.append(compiled_op("forward", position, op.name, target, op))
    backward = []
    for op in reversed(ops):
        if op.recomputed:
            target = f"aten.{op.target or op.name.rpartition('.')[2]}.default"
            arguments = {"argument_names": op.arguments, "forward_name": op.name}
            backward.append((op.name, target, op, arguments))
        if op.differentiable:
            saved = [s for s in ops if s.saved and op.name in (s.users or (s.name,))]
            needs = tuple(slot[s.name] for s in saved)
            name = f"{op.name}_backward"
            arguments = {"argument_names": (*needs, *op.arguments), "forward_name": op.name}
            target = f"aten.{name.rpartition('.')[2]}.default"
            backward.append((name, target, op, arguments))
    for position, (name, target, op, fields) in enumerate(backward):
        facts.append(compiled_op("backward", position, name, target, op, **fields))
    facts += [
        m.fact(e.RecomputePlanned, compiled_region_id=REGION, op_name=op.name, cause=op.recomputed)
        for op in ops
        if op.recomputed
    ]
    for position, op in enumerate(op for op in ops if op.saved):
        facts.append(
            m.fact(
                e.SlotPlanned,
                compiled_region_id=REGION,
                position=position,
                op_name=slot[op.name],
                slot_kind=op.saved,
                shape=(4, 8),
                dtype="float32",
                nbytes=packed.get(op.name, op.nbytes),
                blocking_name=op.name,
                blocked_because="not in recomputable allowlist",
            )
        )
    for name, nbytes in hooks:
        [op] = [op for op in ops if op.name == name]
        facts.append(
            m.fact(
                e.HookInlined,
                compiled_region_id=REGION,
                op_name=name,
                inlined=True,
                pack_targets=("aten._to_copy.default",),
                unpack_targets=("aten._to_copy.default",),
                nbytes=op.nbytes,
                packed_nbytes=nbytes,
            )
        )
    return [*facts, *breaks, *more]


def analysis_of(*ops, **options):
    return Analysis(m.make_log(*compiled_facts(*ops, **options)))


def region_of(*ops, **options):
    [region] = analysis_of(*ops, **options).compiled_regions
    return region


def block(name, line=10, **options):
    """Return the ops of one block of a model: a norm, a matrix product, an activation."""
    return [
        Op(f"{name}.norm", line, module=name, **options),
        Op(f"{name}.addmm", line + 1, module=name, nbytes=4000, **options),
        Op(f"{name}.gelu", line + 1, module=name, nbytes=4000, **options),
    ]
