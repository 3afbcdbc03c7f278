// @ts-check
/**
 * Types of the scene of a run; `autogradviz/distributed_runs/scene/schema.py` describes the fields.
 *
 * @typedef {object} RunScene
 * @property {string} title
 * @property {string} facts
 * @property {string} verdict
 * @property {string[]} notices
 * @property {number[]} steps
 * @property {RunGroup[]} groups
 * @property {RunRank[]} ranks
 * @property {RunCells} cells
 * @property {RunFindingCard[]} findings
 * @property {CollectiveLanes[]} lanes
 * @property {number} hidden_lanes
 * @property {OpDifference[]} differences
 * @property {string} command
 */

/**
 * @typedef {object} RunGroup
 * @property {string} label
 * @property {number} first
 * @property {number} count
 * @property {number} odd
 * @property {(number | null)[]} usual_ops
 */

/**
 * @typedef {object} RunRank
 * @property {number} rank
 * @property {number} group
 * @property {string} host
 * @property {string} end
 * @property {boolean} is_complete
 * @property {string} file
 * @property {number} nbytes
 * @property {string[]} odd
 * @property {number} reference
 * @property {boolean} holds_parts
 */

/**
 * @typedef {object} RunCells values of all ranks and steps, row by row
 * @property {Uint8Array} state
 * @property {Int32Array} ops
 * @property {Float32Array} time_ms
 * @property {Float32Array} first_ms
 * @property {Float32Array} saved
 * @property {Float32Array} gradient
 * @property {Float32Array} loss
 */

/**
 * @typedef {object} FindingFields
 * @property {string} heading
 * @property {number[]} ranks
 */

/** @typedef {FindingFields & import("../types.js").SceneFinding} RunFindingCard */

/**
 * @typedef {object} CollectiveLanes
 * @property {string} label
 * @property {number} first
 * @property {number} total
 * @property {number[]} steps
 * @property {number[]} numbers
 * @property {LaneCall[]} calls
 * @property {Lane[]} lanes
 * @property {number} hidden
 */

/**
 * @typedef {object} LaneCall
 * @property {string} name
 * @property {string} tensors
 * @property {string} file
 * @property {number} line
 * @property {string} text
 */

/**
 * @typedef {"same" | "other" | "extra" | "shifted" | "missing" | "unknown" | "none"} CellState
 */

/**
 * @typedef {object} Lane
 * @property {string} label
 * @property {number[]} ranks
 * @property {CellState[]} states
 * @property {number[]} calls
 * @property {number[]} numbers
 */

/**
 * @typedef {object} OpDifference
 * @property {number} rank
 * @property {number} reference
 * @property {number} step
 * @property {number} index
 * @property {OpPair[]} rows
 */

/**
 * @typedef {object} OpPair
 * @property {string} own
 * @property {string} own_place
 * @property {string} other
 * @property {string} other_place
 */

export {};
