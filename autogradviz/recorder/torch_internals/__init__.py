"""Undocumented PyTorch APIs and workarounds for PyTorch behavior.

NOTE [ Workarounds ]
``recorder/torch_internals/`` corrects what a dispatch mode would change:

- ``run_below_mode.py``: in inference mode, composite operators are decomposed above autograd;
  numbers wrapped by C++ are wrapped again; the kernel of an operator that was registered without a
  gradient runs with autograd enabled; autocast and lazy conjugation, which a mode disables for
  nested calls, are enabled again. On the CPU, ``_foreach_*_`` writes increment their versions once.
- ``nodes_sensitive_to_mode.py``: the mode is temporarily disabled while the few backward formulas
  run that give different bits, NaN or no error under any mode, and where a sparse gradient reaches
  a leaf.
- ``create_subclasses_under_mode.py``: the mode is temporarily disabled in calls like
  ``MyTensor([1.0])``, because PyTorch cannot create a subclass from a tensor that a mode returned.
- ``patches.py``: ``torch.utils.swap_tensors`` rejects tensors with weak references, so
  ours are released first.
- ``wrapper_tensors.py``: a lazy backend (XLA) does not support dispatch modes. If one is
  present when a recording starts, no mode is installed, and the trace says so.
- ``hide_frames_from_warnings.py``: excludes frames of the recorder from the ``stacklevel`` of
  warnings.

A node has finished when its thread starts the next one. A post-hook on each node would make the
engine keep the node's incoming gradients while it runs.
"""

# The first import: it raises one clear error for all names that this PyTorch lacks.
import autogradviz.recorder.torch_internals.private_api  # noqa: F401
