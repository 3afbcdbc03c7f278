"""Records what Dynamo and AOTAutograd compile, and each run of what they compiled.

NOTE [ Where the facts about compiled code are read ]
Compiled autograd makes every hook part of the graph that it compiles. While it is enabled, the
graph of a backward is walked but nothing is hooked, and the trace says so.

What compilers did is recorded in ``recorder/compile/``. It replaces functions that PyTorch calls
only to log (``torch_internals/names_in_compilers.py`` lists them): they receive the live graphs,
and none of our frames is on the stack while PyTorch traces. No option, pass, backend or log handler
is set. These replacements are installed when the compilers are loaded, and stay installed while
they run. A graph is turned into plain values at once (``read_graph_module.py``), because PyTorch
strips it later; sizes that are symbolic are read as text and hint, so that no guard is added. A
graph from AOTAutograd's cache is text (``compiled_graphs/read_graph_text.py``); so are the logs of
``TORCH_TRACE``, which ``export/import_compile_trace.py`` reads without PyTorch.

- graphs of a region, inlined hooks, decisions of the cache: ``observe_compilers.py``.
- why the partitioner may not compute an op again: ``observe_compilers.py``: edges of the graph
  that it cuts.
- saved slots, recomputed ops and their causes: the module
  ``compiled_graphs/events_and_slots_of_regions.py``; the two graphs imply them.
- graphs of Dynamo, breaks, recompiles, compiled autograd: ``observe_compilers.py``; breaks and
  guards from lists that PyTorch fills anyway.
- a region that was compiled before the recording: ``find_compiled_before.py``: through the class of
  its node.
- runs of a region, with the saved tensors and their versions: ``region_runs.py``: where AOTAutograd
  saves them, else when the node is walked.

The backward graph takes the saved values in the order of the slots at run time, which joins plan
and runs. A compiled region is one node, so ``analysis/places_and_reasons_of_compiled_saves.py``
assigns each value that it saves to the line and module of the first op whose gradient needs it.
Sums by line and module, the source view and ``compare`` use that.

Ops of a region are recorded once, with its graph; ``compiled_code.py`` finds the code that runs a
graph. In a run, the native engine ignores them. If no op of a graph draws numbers, writes to a
tensor, communicates or is not PyTorch's, it switches the observers of the thread off until the
region ends (``native/switch_observers_off.h``), because the dispatcher boxes all arguments
for an observer, even for one that ignores them. It does not do so while a profiler runs. What
remains of the cost of a warm step are the node runs and the saved tensors, two thirds of its
events, and the gradients of leaves.

A region that was compiled before the recording is searched once per process: what was found is kept
as long as the custom Function of the region.
"""
