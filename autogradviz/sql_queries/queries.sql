-- Named queries of `autogradviz sql TRACE NAME`, for DuckDB. The table `events` is the trace,
-- `steps` has its training steps.
-- A block begins with "-- NAME: TEXT". The first ones are views, which the others read.

-- views: lines of stacks, ops, saved tensors, parameters
CREATE VIEW frames AS
SELECT frame_id, library, function, "text" AS source,
       regexp_replace(filename, '^.*[/\\]', '') || ':' || lineno AS line
FROM events WHERE kind = 'FrameSeen';

CREATE VIEW lines AS  -- the innermost line of the user in each stack
SELECT stack_id, arg_min(line, place) AS line, arg_min(source, place) AS source
FROM (SELECT stack_id, unnest(frame_ids) AS frame_id, generate_subscripts(frame_ids, 1) AS place
      FROM events WHERE kind = 'StackSeen')
JOIN frames USING (frame_id) WHERE NOT library GROUP BY stack_id;

CREATE VIEW ops AS
SELECT op.seq, op.time_ns, op.thread, op.op, op.phase, op.inputs, op.outputs, op.written,
       op.output_hashes, op.duration_ns, op.sequence_nr, op.node_id, op.call_id, op.region_id,
       op.recompute_id, op.failed, lines.line, lines.source
FROM (SELECT * FROM events WHERE kind = 'OpCalled') AS op LEFT JOIN lines USING (stack_id);

CREATE VIEW tensors AS
SELECT tensor_id, storage_id, shape, dtype, device, nbytes, storage_nbytes
FROM events WHERE kind = 'TensorSeen';

CREATE VIEW nodes AS
SELECT node_id, any_value(node_name) AS node_name, any_value(sequence_nr) AS sequence_nr
FROM events WHERE kind = 'NodeSeen' GROUP BY node_id;

CREATE VIEW modules AS
SELECT call.call_id, module.module_name, module.type_name
FROM events AS call JOIN events AS module USING (module_id)
WHERE call.kind = 'ModuleEntered' AND module.kind = 'ModuleSeen';

CREATE VIEW creators AS  -- the op that created a node
SELECT thread, sequence_nr, min(seq) AS seq, any_value(line) AS line,
       any_value(call_id) AS call_id
FROM ops WHERE sequence_nr IS NOT NULL AND phase = 'forward' GROUP BY thread, sequence_nr;

CREATE VIEW saves AS
SELECT least(save.seq, creators.seq) AS seq, save.saved_id, save.node_id, nodes.node_name, coalesce(seen.slot, save.slot) AS slot,
       save.tensor_id, tensors.storage_id, tensors.shape, tensors.dtype, tensors.nbytes,
       tensors.storage_nbytes, save.version,
       save.packed_by, save.recompute_id, coalesce(lines.line, creators.line) AS line,
       creators.call_id
FROM (SELECT * FROM events WHERE kind = 'TensorSaved') AS save
LEFT JOIN (SELECT saved_id, any_value(slot) AS slot, any_value(node_id) AS node_id
           FROM events WHERE kind = 'SlotSeen' GROUP BY saved_id) AS seen USING (saved_id)
LEFT JOIN nodes ON nodes.node_id = coalesce(save.node_id, seen.node_id)
LEFT JOIN tensors USING (tensor_id)
LEFT JOIN lines USING (stack_id)
LEFT JOIN creators ON creators.thread = save.thread
                  AND creators.sequence_nr = coalesce(save.sequence_nr, nodes.sequence_nr);

CREATE VIEW parameters AS
SELECT tensor_id, min(parameter_name) AS parameter, bool_or(requires_grad) AS requires_grad
FROM events WHERE kind = 'ParameterSeen' AND NOT buffer GROUP BY tensor_id;

CREATE VIEW regions AS
SELECT region.seq, region.region_id, region.function, lines.line
FROM (SELECT * FROM events WHERE kind = 'RegionEntered') AS region
LEFT JOIN lines USING (stack_id);

-- ops: calls and time of each operator
SELECT op, phase, count(*) AS calls, sum(duration_ns) / 1e6 AS ms
FROM ops GROUP BY op, phase ORDER BY ms DESC, op, phase;

-- slow-lines: time of the operators that each line called
SELECT line, max(source) AS source, phase, count(*) AS ops, sum(duration_ns) / 1e6 AS ms
FROM ops GROUP BY line, phase ORDER BY ms DESC, line;

-- modules: time of the operators of each module's own forward
SELECT module_name AS module, any_value(type_name) AS type, count(*) AS ops,
       sum(duration_ns) / 1e6 AS ms
FROM ops JOIN modules USING (call_id) WHERE phase = 'forward'
GROUP BY module_name ORDER BY ms DESC, module;

-- writes: writes to memory in place that were observed, and the versions that they made
SELECT write.seq, write.op_seq, lines.line, write.op, write.version, write.seen_version, write.storage_id
FROM (SELECT * FROM events WHERE kind = 'VersionBumped') AS write
LEFT JOIN lines USING (stack_id) ORDER BY write.seq;

-- writes-to-saved: writes to the memory of a saved tensor after its save, before its unpack
SELECT write.seq, lines.line, write.op, saves.node_name, saves.slot, saves.line AS saved_at,
       saves.version AS saved_version, write.seen_version
FROM (SELECT * FROM events WHERE kind = 'VersionBumped') AS write
JOIN saves ON saves.storage_id = write.storage_id AND saves.seq < write.seq
LEFT JOIN (SELECT saved_id, min(seq) AS seq FROM events
           WHERE kind IN ('TensorUnpacked', 'TensorReleased') GROUP BY saved_id) AS used
       ON used.saved_id = saves.saved_id
LEFT JOIN lines ON lines.stack_id = write.stack_id
WHERE used.seq IS NULL OR used.seq > write.seq
ORDER BY write.seq, saves.seq;

-- unpacked-changed: saved tensors whose version or content differs when backward reads them
SELECT used.seq, saves.node_name, saves.slot, saves.line, used.version, used.seen_version,
       used.saved_hash IS DISTINCT FROM used.seen_hash AS content_differs
FROM (SELECT * FROM events WHERE kind = 'TensorUnpacked') AS used
JOIN saves USING (saved_id)
WHERE used.version <> used.seen_version OR used.saved_hash <> used.seen_hash
ORDER BY used.seq;

-- saved-by-line: bytes that each line saved for backward, each storage once
SELECT line, count(*) AS tensors, sum(storage_nbytes) AS nbytes
FROM (SELECT storage_id, arg_min(line, seq) AS line, max(storage_nbytes) AS storage_nbytes
      FROM saves WHERE recompute_id IS NULL GROUP BY storage_id)
GROUP BY line ORDER BY nbytes DESC, line;

-- saved-by-node: saved tensors of each type of node
SELECT node_name AS node, slot, count(*) AS tensors, sum(nbytes) AS nbytes
FROM saves WHERE recompute_id IS NULL GROUP BY node_name, slot ORDER BY nbytes DESC, node, slot;

-- saved-by-module: bytes that each module's own forward saved, each storage once
SELECT module_name AS module, count(*) AS tensors, sum(storage_nbytes) AS nbytes
FROM (SELECT storage_id, arg_min(call_id, seq) AS call_id, max(storage_nbytes) AS storage_nbytes
      FROM saves WHERE recompute_id IS NULL GROUP BY storage_id)
JOIN modules USING (call_id) GROUP BY module_name ORDER BY nbytes DESC, module;

-- never-released: saved tensors that were alive at the end of the recording
SELECT saves.seq, node_name AS node, slot, saves.line, shape, dtype, nbytes
FROM saves WHERE saved_id NOT IN (SELECT saved_id FROM events WHERE kind = 'TensorReleased')
ORDER BY saves.seq;

-- backwards: calls of backward, and how they ended
SELECT start.seq, lines.line, start.backward_id, start.retain_graph, start.create_graph,
       finish.failed
FROM (SELECT * FROM events WHERE kind = 'BackwardStarted') AS start
LEFT JOIN (SELECT backward_id, failed FROM events WHERE kind = 'BackwardEnded') AS finish
       USING (backward_id)
LEFT JOIN lines USING (stack_id) ORDER BY start.seq;

-- without-gradient: parameters that require a gradient and got none from a backward
SELECT parameter FROM parameters
WHERE requires_grad
  AND tensor_id NOT IN (SELECT tensor_id FROM events WHERE kind = 'GradAccumulated')
ORDER BY parameter;

-- without-optimizer: parameters that got a gradient and that no optimizer step had
SELECT parameter FROM parameters
WHERE tensor_id IN (SELECT tensor_id FROM events WHERE kind = 'GradAccumulated')
  AND tensor_id NOT IN (SELECT unnest(tensor_ids) FROM events WHERE kind = 'OptimizerStepped')
ORDER BY parameter;

-- gradient-norms: recorded norms of the gradients of parameters
SELECT read.seq, parameter, read.backward_id, read.norm
FROM (SELECT * FROM events WHERE kind IN ('NormRead', 'StepNormRead')) AS read
JOIN parameters USING (tensor_id) ORDER BY read.seq;

-- not-finite: operators whose outputs have NaN or infinity, the first one first; needs fingerprints
SELECT ops.seq, ops.line, ops.op, ops.phase, found.nan_count, found.infinity_count
FROM (SELECT seq, unnest(output_hashes) AS content_hash FROM ops) AS result
JOIN (SELECT content_hash, any_value(nan_count) AS nan_count,
             any_value(infinity_count) AS infinity_count
      FROM events WHERE kind = 'NotFiniteSeen' GROUP BY content_hash) AS found USING (content_hash)
JOIN ops USING (seq) ORDER BY ops.seq;

-- steps: the training steps, a round of several optimizers as one, and their losses
SELECT * FROM steps ORDER BY step;

-- recomputations: how often each checkpointed region was recomputed, and for how long
SELECT regions.line, regions.function, count(start.seq) AS recomputations,
       sum(finish.time_ns - start.time_ns) / 1e6 AS ms
FROM regions
LEFT JOIN (SELECT * FROM events WHERE kind = 'RecomputeStarted') AS start USING (region_id)
LEFT JOIN (SELECT recompute_id, time_ns FROM events WHERE kind = 'RecomputeStopped') AS finish
       ON finish.recompute_id = start.recompute_id
GROUP BY regions.line, regions.function ORDER BY ms DESC NULLS LAST, line;

-- state-changes: Python state that a region read, and that changed before its recomputation
SELECT change.seq, regions.line, change.state_kind, array_to_string(change.state_path, '') AS state,
       change.before, change.after, change.in_forward
FROM (SELECT * FROM events WHERE kind = 'StateChanged') AS change
LEFT JOIN regions USING (region_id) ORDER BY change.seq;

-- hooks: the hooks that ran, their time, and whether they changed a gradient
SELECT hook.hook_name, run.hook_kind, lines.line, count(*) AS runs,
       sum(run.duration_ns) / 1e6 AS ms, bool_or(run.changed) AS changed
FROM (SELECT * FROM events WHERE kind = 'HookRan') AS run
LEFT JOIN (SELECT hook_id, any_value(hook_name) AS hook_name, any_value(stack_id) AS stack_id
           FROM events WHERE kind = 'HookRegistered' GROUP BY hook_id) AS hook USING (hook_id)
LEFT JOIN lines ON lines.stack_id = hook.stack_id
GROUP BY hook.hook_name, run.hook_kind, lines.line ORDER BY ms DESC, hook_name;

-- graph-breaks: where torch.compile ended a graph before the function returned
SELECT seq, regexp_replace(filename, '^.*[/\\]', '') || ':' || lineno AS line, compile_id,
       op_count, reason
FROM events WHERE kind = 'CompiledGraphCaptured' AND graph_break ORDER BY seq;
