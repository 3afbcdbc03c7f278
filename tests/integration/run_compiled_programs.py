"""Run the compiled programs, and print all that a recording could change.

Usage: python run_compiled_programs.py ENGINES BACKENDS MODE NAMES [STATES FOLDER]

Each engine runs all programs in a process of its own, forked after the imports; the engine "none"
records nothing and runs first. In the mode "during" the programs compile while they are recorded,
in the mode "before" they have compiled before. Both are followed by a step after the recording.

The states are those of Inductor's caches, "cold" and "warm" in this order; each engine has its own
caches in the folder. Its cold caches contain the C++ that the first engine has compiled, but no
graphs: the C++ compiler takes most of the time and does not see a recording.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import shutil
import sys
import traceback
import types
import warnings
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import compiled_programs
import torch
import torch._dynamo
import torch._dynamo.backends.inductor
import torch._dynamo.convert_frame
import torch._dynamo.trace_rules
import torch._dynamo.utils
import torch._inductor.compile_fx
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._functorch._aot_autograd import graph_compile

import autogradviz
from autogradviz.events import RecorderFailed

STEPS = 3
RECORDED = {"during": (0, 1), "before": (1,)}
"""The steps that are recorded, by mode."""

graphs: list[str] = []
"""The texts of the graphs that AOTAutograd made."""


def digest(value: Any) -> Any:
    """Convert a result to values that JSON can hold and that differ if a bit differs."""
    if isinstance(value, torch.Tensor):
        dense = value.detach().contiguous()
        content = dense.view(torch.uint8) if dense.dim() else dense.reshape(1).view(torch.uint8)
        hashed = hashlib.sha256(content.numpy().tobytes()).hexdigest()[:12]
        return [str(value.dtype), list(value.shape), list(value.stride()), hashed]
    if isinstance(value, dict):
        return {str(key): digest(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [digest(part) for part in value]
    return value if value is None or isinstance(value, (int, float, str)) else repr(value)


def plain(text: str) -> str:
    """Remove addresses and other numbers that differ from process to process."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"__compiled_fn_(\d+)_[0-9a-f_]+", r"__compiled_fn_\1", text)
    text = re.sub(r"/tmp/\S*", "/tmp", text)
    text = re.sub(r"frozenset\(\{.*?\}\)", "frozenset", text)  # in the order of addresses
    text = re.sub(r"(___dict_version\(.*?\) == )\d+", r"\1N", text)
    return re.sub(r"\d{9,}|(?<=__builtins_dict___)\d+", "N", text)


def guards() -> list[str]:
    """Return the guards of everything that is compiled."""
    found = []
    for reference in torch._dynamo.convert_frame.input_codes.seen:
        code = reference()
        if code is not None:
            entries = _debug_get_cache_entry_list(code)
            found += [f"{code.co_name}: {entry.guard_manager}" for entry in entries]
    return [plain(each) for each in found]


def counted() -> dict[str, Any]:
    """Return the counters of Dynamo, AOTAutograd and Inductor, without durations."""
    found = {name: dict(values) for name, values in torch._dynamo.utils.counters.items() if values}
    for values in found.values():
        for name in [name for name in values if name.endswith(("_ns", "_us", "_s"))]:
            del values[name]
    return {name: {plain(str(k)): v for k, v in values.items()} for name, values in found.items()}


def compiles() -> list[Any]:
    """Return the names, guards and reasons of all compilations."""
    return [
        [
            each.compile_id,
            each.co_name,
            each.guard_count,
            each.graph_op_count,
            plain(str(each.recompile_reason)),
            plain(str(each.fail_reason)),
            each.is_forward,
        ]
        for each in torch._dynamo.utils.get_compilation_metrics()
    ]


def cache_keys() -> list[str]:
    """Return the keys of the graphs in the caches of Inductor, of all programs until now."""
    folder = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "none"))
    found = [*folder.glob("aotautograd/*"), *folder.glob("fxgraph/*/*")]
    return sorted(each.relative_to(folder).as_posix() for each in found)


def run_step(step: Any) -> dict[str, Any]:
    """Run one step, and return its results, warnings and error."""
    result = error = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = digest(step())
        except BaseException as raised:
            error = [type(raised).__name__, plain(str(raised))]
    return {
        "result": result,
        "error": error,
        "random state": digest(torch.get_rng_state()),
        "warnings": [
            [each.category.__name__, plain(str(each.message)), each.filename, each.lineno]
            for each in warned
        ],
    }


def state() -> dict[str, Any]:
    """Return the graphs, guards and counters of the compilers."""
    found = {
        "graphs": list(graphs),
        "guards": guards(),
        "counters": counted(),
        "compiles": compiles(),
        "cache keys": cache_keys(),
    }
    graphs.clear()
    return found


def reset() -> None:
    """Forget everything that was compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
    torch._dynamo.convert_frame.input_codes.clear()
    torch._dynamo.convert_frame.FRAME_COUNTER = 0
    torch._dynamo.convert_frame.FRAME_COMPILE_COUNTER.clear()
    torch.manual_seed(0)
    graphs.clear()


def run(name: str, backend: str, mode: str, engine: str) -> list[Any]:
    """Run all steps of a program, recorded or not; return what each did."""
    reset()
    found = []
    step = compiled_programs.PROGRAMS[name](partial(torch.compile, backend=backend))
    failures: list[str] = []
    with ExitStack() as recording:
        for number in range(STEPS):
            recorded = engine != "none" and number in RECORDED[mode]
            if recorded and number - 1 not in RECORDED[mode]:
                trace = recording.enter_context(autogradviz.record(engine=engine))  # type: ignore[arg-type]
            outcome = run_step(step)
            if recorded and number + 1 not in RECORDED[mode]:
                recording.close()
                failures = [each.message for each in trace.log.of(RecorderFailed)]
            found.append(outcome | state())
    return [*found, failures]


def capture_graphs() -> None:
    """Keep the text of each graph that AOTAutograd logs."""

    def text(module: torch.fx.GraphModule) -> str:
        nodes = [
            f"{node.format_node()} {node.meta.get('stack_trace')}" for node in module.graph.nodes
        ]
        return plain("\n".join(nodes))

    def captured(original: Any) -> Any:
        def log(*args: Any, **kwargs: Any) -> Any:
            graphs.extend([text(each) for each in args if isinstance(each, torch.fx.GraphModule)])
            return original(*args, **kwargs)

        return log

    for name in ("_log_joint_graph", "_log_fw_bw_graphs", "_log_inference_graph"):
        setattr(graph_compile, name, captured(getattr(graph_compile, name)))


def remains() -> list[str]:
    """Return the names under which PyTorch still holds something of the recorder."""
    folder = Path(autogradviz.__file__).parent.as_posix()

    def is_ours(value: Any) -> bool:
        if type(value) in {staticmethod, classmethod, types.MethodType}:
            value = value.__func__
        return type(value) is types.FunctionType and folder in value.__code__.co_filename

    def inside(value: Any) -> list[Any]:
        if isinstance(value, type) or type(value) is dict:
            entries = dict(vars(value) if isinstance(value, type) else value)
            return [*entries, *entries.values()]
        return list(value) if type(value) in {list, tuple, set, frozenset} else []

    rules = torch._dynamo.trace_rules.get_torch_obj_rule_map()
    found = [repr(each) for each in rules if is_ours(each)]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and type(module) is types.ModuleType:
            for label, value in list(vars(module).items()):
                if any(is_ours(each) for each in [value, *inside(value)]):
                    found.append(f"{name}.{label}")
    return found


def run_all(engine: str, backends: str, mode: str, names: str) -> dict[str, Any]:
    """Run programs; return the steps of each, and what remains of the recorder."""
    gc.disable()  # code in garbage has guards as well, so they would depend on the next collection
    capture_graphs()
    outcome = {
        f"{name} {backend} {mode}": run(name, backend, mode, engine)
        for backend in backends.split(",")
        for name in names.split(",")
    }
    return {"programs": outcome, "remains": remains() if engine != "none" else []}


def run_in_child(*arguments: str) -> dict[str, Any]:
    """Return the result of ``run_all`` in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            content = json.dumps(run_all(*arguments))
            with os.fdopen(write, "w") as file:
                file.write(content)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as file:
        content = file.read()
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit(f"the programs with engine {arguments[0]} did not end")
    result: dict[str, Any] = json.loads(content)
    return result


def main() -> None:
    """Run the programs that the command line names; print the results as JSON."""
    engines, backends, mode, names, *caches = sys.argv[1:]
    states, folder = caches or ("", "")
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    compiled: Path | None = None
    for engine in engines.split(","):
        for state in states.split(","):
            if state:
                own = Path(folder, engine)
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own)
                if state == "cold" and compiled is not None:
                    no_graphs = shutil.ignore_patterns("fxgraph", "aotautograd", "locks")
                    shutil.copytree(compiled, own, ignore=no_graphs)
            found[f"{engine} {state}".strip()] = run_in_child(engine, backends, mode, names)
            compiled = compiled or (own if state else None)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
