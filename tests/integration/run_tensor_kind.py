"""Run the step of a kind of tensor with options of ``record``, and print a line of JSON for each.

    python run_tensor_kind.py KIND OPTION ...

A line has the option and the sentences that say what is not recorded. It is empty where
everything is, and begins with "WRONG: " where the result is not that of plain PyTorch, where the
recorder failed, or where something is missing that no sentence names.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import tensor_kinds
import torch

import autogradviz
from autogradviz.errors import AutogradvizError
from autogradviz.events import (
    GradientFactsNotChecked,
    LossRead,
    NodeSeen,
    NormRead,
    OpCalled,
    OutputNormRead,
    TensorSaved,
)

RECORDED = {
    "native": {"engine": "native"},
    "python": {"engine": "python"},
    "ops=False": {"ops": False, "engine": "native"},
    "ops=False, python": {"ops": False, "engine": "python"},
    "fingerprints": {"fingerprints": True, "engine": "native"},
    "fingerprints, python": {"fingerprints": True, "engine": "python"},
    "norms": {"norms": True, "engine": "native"},
    "norms, python": {"norms": True, "engine": "python"},
    "verify": {"verify": True},
    "keep_steps": {"keep_steps": 1},
    "annotate_memory": {"annotate_memory": True},
    "break_on": {"break_on": ["not-finite", "op:never_called"]},
}
"""The options of ``record`` by name."""
_OF_EVERY_KIND = {
    "derivative: no parameters of modules in what is back-propagated first",
    "samples: no module receives a floating tensor of two or more samples",
    "micro-batches: give the arguments of the step: check(step, model, batch=(x, y))",
}
"""Sentences of ``check`` on steps with plain tensors, too."""
OPTIONS = (*RECORDED, "check", "owners", "reproduce", "html", "save")


def results_of(kind, run=lambda step: step.run()):
    """Return the results of a new step, or the exception that it raised."""
    torch.manual_seed(0)
    step = tensor_kinds.KINDS[kind]()
    torch.manual_seed(1)
    try:
        run(step)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [tensor_kinds.value_of(each) for each in step.results()]


def recorded(kind, options):
    """Return results and the trace of a recorded step."""
    traces = []

    def run(step):
        with autogradviz.record(step.model, **options) as trace:
            traces.append(trace)
            step.run()

    return results_of(kind, run), traces[0]


def sentences(kind, option):
    """Yield the sentences of a cell."""
    plain = results_of(kind)
    options = RECORDED.get(option)
    if options is not None:
        results, trace = recorded(kind, options)
        if _compared(results, options) != _compared(plain, options):
            yield f"WRONG: {results} instead of {plain}"
        yield from _notes_of(trace)
        yield from _silent(trace, options)
        str(trace), trace.diagnose()
    elif option == "check":
        yield from _checked(kind, plain)
    else:
        yield from _used(kind, option)


def _compared(results, options):
    """Return results without versions, if a dispatch mode is active.

    The engine of PyTorch then adds gradients out of place, which leaves their versions at 0.
    """
    if isinstance(results, str) or options.get("engine") == "native" or "ops" in options:
        return results
    return [each[:5] for each in results]


def _notes_of(trace):
    for notice in trace.analysis.notices:
        yield f"{'WRONG: ' if notice.failure else ''}{notice.hook_point}: {notice.message}"
    if trace.log.of(GradientFactsNotChecked) or trace.certificate().is_recorded:
        certificate = trace.certificate()
        for fact in certificate.failed:
            yield f"WRONG: {fact}"
        reasons = dict.fromkeys(reason for _, reason, _ in certificate.not_checked)
        yield from (f"not verified: {reason}" for reason in reasons)


def _silent(trace, options):
    """Yield the gaps of a recording that does not name them."""
    log, named = trace.log, {notice.hook_point for notice in trace.analysis.notices}
    with_ops = options.get("ops", True)
    hashes = (h for op in log.of(OpCalled) for h in (*op.input_hashes, *op.output_hashes))
    verified = "verify" not in options or (
        trace.certificate().not_checked or sum(trace.certificate().checked.values())
    )
    for is_missing, excuses, what in (
        (with_ops and not log.of(OpCalled), {"ops"}, "no operator"),
        (not log.of(NodeSeen), {"torch.func"}, "no node"),
        (any(map(_has_no_bytes, _saved(trace))), {"tensors"}, "a saved tensor of 0 bytes"),
        (
            "fingerprints" in options and all(h < 0 for h in hashes),
            {"fingerprints"},
            "no fingerprint",
        ),
        ("norms" in options and not log.of(OutputNormRead), {"norms"}, "no norm of an output"),
        (not verified, {"torch.func"}, "nothing verified"),
        (
            with_ops and not log.of(NormRead) and not log.of(LossRead),
            {"norms", "losses"},
            "no norm of a gradient",
        ),
    ):
        if is_missing and not named & excuses:
            yield f"WRONG: {what}, and no sentence"


def _saved(trace):
    return [trace.analysis.tensors[saved.tensor_id] for saved in trace.log.of(TensorSaved)]


def _has_no_bytes(tensor):
    return tensor.nbytes == 0 and 0 not in tensor.shape


def _checked(kind, plain):
    checked = []

    def run(step):
        checked.append(autogradviz.check(step.run, step.model, progress=False))
        step.run()

    results = results_of(kind, run)
    if isinstance(results, str) and results != plain:
        yield f"WRONG: {results}"
    for entry in checked[0] if checked else ():
        if entry.outcome == "fails":
            yield f"WRONG: {entry}"
        sentence = f"{entry.relation}: {entry.statement}"
        is_usual = entry.is_absent or sentence in _OF_EVERY_KIND
        if entry.outcome == "not applied" and not is_usual:
            yield sentence


def _used(kind, option):
    """Yield the problems of the readers of a recording."""
    options = {"engine": "native"}
    if option == "owners":

        def run(step):
            with autogradviz.record(step.model, **options):
                step.run()
            for each in (*step.results(), *(step.model.parameters() if step.model else ())):
                str(autogradviz.owners(each))

        results = results_of(kind, run)
        if isinstance(results, str) and results != results_of(kind):
            yield f"WRONG: {results}"
        return
    _, trace = recorded(kind, options)
    if option == "reproduce":
        yield from _reproduced(kind)
    elif option == "html":
        with tempfile.TemporaryDirectory() as folder:
            trace.html(Path(folder) / "page.html")
        trace.graph()
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.agv"
            trace.save(path)
            if autogradviz.load(path) != trace:
                yield "WRONG: the loaded trace differs"


def _reproduced(kind):
    def run(step):
        step.run()
        raise ArithmeticError(kind)

    torch.manual_seed(0)
    step = tensor_kinds.KINDS[kind]()
    with contextlib.suppress(ArithmeticError), autogradviz.record(step.model) as trace:
        run(step)
    try:
        found = trace.reproduce(seconds=5)
    except AutogradvizError as error:
        yield str(error)
    else:
        compile(found.text, "<reproduction>", "exec")
        yield from found.missing


def main(kind, *options):
    """Print a line for each option."""
    warnings.simplefilter("ignore")
    for option in options:
        _write([option, None])
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                found = list(dict.fromkeys(sentences(kind, option)))
        except Exception as error:
            found = [f"WRONG: {type(error).__name__}: {error}"]
            traceback.print_exc()
        _write([option, found])


def _write(line):
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
