"""Short descriptions of a drawn scene, for the tests of mechanisms."""

from pathlib import Path

import torch

from autogradviz.events import VersionBumped


def marked_line(filename, mark):
    """Return the number of the only line of a file that ends with a mark."""
    lines = Path(filename).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"# <{mark}>")]
    return number


def leaf(*shape, **options):
    return torch.rand(shape or (3,), requires_grad=True, **options)


def same(tensor):
    return tensor


def boxes(trace):
    return [(node.name, node.state, node.runs) for node in trace._scene.nodes]


def saved_badges(trace):
    return [(c.slot, c.version, c.state, c.packed_by, c.nbytes) for c in trace._scene.saved_badges]


def storage_events(trace):
    return [(m.kind, m.op, m.ok, m.lineno) for m in trace._scene.storage_events]


def bumps(trace):
    return [(b.op, b.version, b.seen_version) for b in trace.log.of(VersionBumped)]


def bars(trace, kind):
    return [(span.label, span.lineno) for span in trace._scene.spans if span.kind == kind]


def notes(trace, name):
    return [node.notes for node in trace._scene.nodes if node.name == name]
