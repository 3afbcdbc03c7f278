"""Retention: keeps, compresses, drops and writes events during a recording.

NOTE [ Long recordings ]
A step ends at an optimizer's step, or at a backward if no optimizer is used
(``recorder/backward/training_steps.py``). Gradients that exist before an optimizer's first step
belong to that step. At the end of a step, the flight recorder
(``recorder/retention/flight_recorder.py``) writes a batch to the file, if there is one, and drops
the events of the oldest step. A definition is kept while a kept event refers to it or while the
object that it defines is alive (``event_log/filter_and_redact.py``); the recorder's tables
release dead storages, modules, hooks and frames. Both are pruned only when they have doubled in
size. Nodes that outlive their step are defined again in each step that uses them; ``Analysis`` uses
the last definition.

With a path, the flight recorder checks the losses of each step
(``recorder/retention/watch_losses_and_gradients.py``), which were copied when their backward
started. The first loss that is not finite writes the kept events.

A streamed file receives each batch in one write after the last complete one. If a write fails, it
is truncated again, and the recording continues in memory with the last steps. A new file is written
next to its destination and linked to its final name, which fails if another process was faster
(``event_log/overwrite_protection.py``).

With several ranks, each process writes its own file in one folder, named by the rank that the
launcher put into the environment (``support/locks_gc_and_stderr.py``), so no name is searched
and none can be taken twice. ``recorder/rank_and_process_groups.py`` records rank, groups and
meshes, without communication. Findings are exchanged through files, and one rank prints them for
all (``distributed_runs/exchange_findings.py``).

``autogradviz run`` waits until the program imports torch (``cli/call_after_import.py``), so that
settings made before the import take effect, and removes its own frames from the traceback.
"""
