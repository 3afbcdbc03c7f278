// @ts-check
/**
 * The scene as the viewer sees it: the tables of `autogradviz/scene/schema.py`, row by row and
 * with their names, so that the two can be read side by side.
 */

/**
 * @typedef {object} Chip
 * @property {number} node
 * @property {number} saved_id
 * @property {string} slot
 * @property {number | null} version
 * @property {number | null} seen_version
 * @property {number} nbytes
 * @property {string} shape
 * @property {string} dtype
 * @property {"held" | "released" | "recomputed" | "broken"} state
 * @property {string} packed_by
 * @property {number | null} storage_id
 * @property {number} width
 * @property {number} saved_ns -1 where unknown
 * @property {number} released_ns -1 where it was not
 */

/**
 * @typedef {object} Pennant
 * @property {number} node
 * @property {string} name
 * @property {string} label
 * @property {string} shape
 * @property {"ok" | "none" | "unknown" | "zero" | "nan"} grad
 * @property {number} shared
 * @property {number} width
 * @property {number | null} norm of the gradient
 */

/**
 * @typedef {object} SceneNode
 * @property {number} index
 * @property {number} node_id
 * @property {number} group
 * @property {string} op
 * @property {string} name
 * @property {string} module
 * @property {number | null} sequence_nr
 * @property {string} filename
 * @property {number} lineno
 * @property {"not_run" | "ran" | "failed"} state
 * @property {boolean} error
 * @property {string[]} hooks one line for each
 * @property {string[]} notes one line for each
 * @property {boolean} writes
 * @property {number} recomputes
 * @property {number} runs
 * @property {number} duration_ns
 * @property {string} shape
 * @property {boolean} compact
 * @property {number} op_width
 * @property {number} name_width
 * @property {number} left_width
 * @property {number} right_width
 * @property {number} born_ns when its forward op ran, -1 where unknown
 * @property {number[]} runs_ns start and end of each run; an end of -1 never came
 * @property {number} forward_ns
 * @property {number} region index, -1
 * @property {string} wrote in place, "v0 → v1"
 * @property {string} cloned "self · 3.1 MB"
 * @property {string} not_finite "forward gave 3 NaN"
 */

/**
 * @typedef {object} SceneEdge
 * @property {number} source
 * @property {number} target
 * @property {number} views
 * @property {boolean} on_path
 */

/** @typedef {{kind: "node" | "group" | "bend" | "top" | "bottom", ref: number}} Cell */

/**
 * @typedef {object} Link
 * @property {number[]} path
 * @property {number[]} edges
 * @property {number} source_port
 * @property {number} target_port
 * @property {boolean} reversed
 * @property {number} views
 */

/**
 * @typedef {object} SceneGroup
 * @property {number} index
 * @property {number} parent
 * @property {"root" | "module" | "region" | "repeat" | "page" | "graph"} kind
 * @property {string} label
 * @property {string} type_name
 * @property {string} path
 * @property {number} depth
 * @property {number} node_count
 * @property {number} nbytes
 * @property {number} repeat
 * @property {boolean} checkpointed
 * @property {number} recomputes
 * @property {"not_run" | "ran" | "failed"} state
 * @property {boolean} error
 * @property {boolean} open
 * @property {number} width
 * @property {number} header_width
 * @property {number} left_width
 * @property {number} right_width
 * @property {Cell[]} cells
 * @property {number[][]} rows
 * @property {Link[]} links
 */

/** @typedef {{filename: string, lineno: number, text: string}} SceneLine */

/**
 * @typedef {object} SceneFinding
 * @property {string} slug
 * @property {string} title
 * @property {string} confidence
 * @property {string} explanation
 * @property {string} fix
 * @property {string} culprit_file
 * @property {number} culprit_line
 * @property {string} culprit_text
 * @property {string} victim_file
 * @property {number} victim_line
 * @property {string} victim_text
 * @property {number[]} nodes
 * @property {number} region
 */

/**
 * @typedef {object} SceneRegion
 * @property {number} index
 * @property {number} region_id
 * @property {number} parent
 * @property {string} module
 * @property {string} function
 * @property {boolean} reentrant
 * @property {string} options
 * @property {boolean} early_stop
 * @property {string} filename
 * @property {number} lineno
 * @property {number} saved
 * @property {number} recomputes
 * @property {string} outcome
 */

/**
 * @typedef {object} SceneDiffRow
 * @property {number} region
 * @property {"same" | "changed" | "added" | "removed" | "not_rerun" | "cached"} status
 * @property {number} forward_nr
 * @property {string} forward_op
 * @property {string} forward_shape
 * @property {number} forward_line
 * @property {number} recompute_nr
 * @property {string} recompute_op
 * @property {string} recompute_shape
 * @property {number} recompute_line
 * @property {string} filename
 * @property {string} policy of selective checkpointing
 */

/**
 * @typedef {object} SceneSpan
 * @property {string} kind
 * @property {string} label
 * @property {number} start_ns
 * @property {number} end_ns
 * @property {number} depth
 * @property {number} thread
 * @property {number} ref a node, or a recomputation's region; -1
 * @property {string} filename
 * @property {number} lineno
 */

/**
 * @typedef {object} SceneStorage
 * @property {number} index
 * @property {number} storage_id
 * @property {string} name
 * @property {string[]} slots
 * @property {number} nbytes
 * @property {string} shape
 * @property {string} dtype
 * @property {string} module
 * @property {number} node -1
 * @property {string} filename
 * @property {number} lineno
 * @property {"held" | "released" | "broken"} state
 * @property {number | null} version
 * @property {number | null} seen_version
 * @property {number[]} holds start and end of each; an end of -1 never came
 * @property {string[]} keepers
 */

/**
 * @typedef {object} SceneMoment
 * @property {number} storage
 * @property {number} time_ns
 * @property {"saved" | "recomputed" | "written" | "unpacked" | "cloned" | "released"} kind
 * @property {number | null} version
 * @property {string} op
 * @property {number} ok
 * @property {string} filename
 * @property {number} lineno
 * @property {number} nbytes that a clone takes
 */

/**
 * @typedef {object} SceneChange
 * @property {number} region
 * @property {string} name
 * @property {string} before
 * @property {string} after
 * @property {number} by_forward
 * @property {string} filename
 * @property {number} lineno
 */

/**
 * @typedef {object} SceneSavedDiff
 * @property {number} region
 * @property {number} position
 * @property {string} slot
 * @property {string} before
 * @property {string} after
 */

/**
 * @typedef {object} SceneModule
 * @property {string} path
 * @property {string} type_name
 * @property {number} forward_ns
 * @property {number} backward_ns
 * @property {number} nbytes
 * @property {number} checkpointed
 * @property {number} frees_nbytes
 * @property {number} costs_ns
 */

/** @typedef {{time_ns: number, nbytes: number}} SceneMemory */

/**
 * @typedef {object} SceneSummary
 * @property {string} title
 * @property {string} subtitle
 * @property {string} torch_version
 * @property {number} nodes
 * @property {number} edges
 * @property {number} ops
 * @property {number} events
 * @property {number} storages
 * @property {number} peak_nbytes
 * @property {number} end_ns
 * @property {number} backwards
 * @property {number} regions
 * @property {number} recomputations
 * @property {string} error_type
 * @property {string} error_message
 * @property {string[]} notices
 * @property {boolean} torn its file is cut off or damaged
 */

/**
 * @typedef {object} Scene
 * @property {SceneSummary} summary
 * @property {SceneGroup[]} groups
 * @property {SceneNode[]} nodes
 * @property {SceneEdge[]} edges
 * @property {Chip[]} chips
 * @property {Pennant[]} pennants
 * @property {SceneFinding[]} findings
 * @property {SceneRegion[]} regions
 * @property {SceneDiffRow[]} diffs
 * @property {SceneSpan[]} spans
 * @property {SceneMemory[]} memory
 * @property {SceneLine[]} lines
 * @property {SceneStorage[]} storages
 * @property {SceneMoment[]} moments
 * @property {SceneModule[]} modules
 * @property {SceneChange[]} changes
 * @property {SceneSavedDiff[]} saved_diffs
 */

/**
 * What anywidget hands to `render`, as far as the viewer uses it.
 *
 * @typedef {object} HostModel
 * @property {(name: string) => any} get
 * @property {(name: string, value: any) => void} set
 * @property {() => void} save_changes
 * @property {(name: string, callback: () => void) => void} on
 * @property {(name: string, callback: () => void) => void} off
 */

export {};
