/** Hand-written scenes in compact notation. */

import { toScene } from "../../assets/viewer/payload/decode.js";
import { indexScene } from "../../assets/viewer/scene/scene_index.js";

const NODE = {
  node_id: 0,
  group: 0,
  op: "",
  name: "",
  module: "",
  filename: "",
  lineno: 0,
  state: "ran",
  error: 0,
  compact: 0,
  op_width: 40,
  name_width: 60,
  left_width: 0,
  right_width: 0,
  duration_ns: 0,
  born_ns: -1,
  runs_ns: [],
  forward_ns: 0,
};

const GROUP = {
  parent: 0,
  kind: "module",
  label: "",
  type_name: "",
  path: "",
  node_count: 0,
  repeat: 1,
  checkpointed: 0,
  open: 0,
  width: 120,
  header_width: 0,
  left_width: 0,
  right_width: 0,
  cells_kind: [],
  cells_ref: [],
  rows: [],
  links_path: [],
  links_edges: [],
  links_source_port: [],
  links_target_port: [],
  links_reversed: [],
  links_views: [],
};

/**
 * Return a payload of tables that are given as rows. Text is interned, as in Python.
 *
 * @param {Record<string, object[]>} tables
 * @param {object} [summary]
 */
export function makePayload(tables, summary = {}) {
  const strings = [""];
  const intern = (text) => {
    if (!strings.includes(text)) strings.push(text);
    return strings.indexOf(text);
  };
  const payload = { schema: 1, strings, string_columns: {}, summary };
  for (const [table, rows] of Object.entries(tables)) {
    const names = Object.keys(rows[0] ?? {});
    const texts = names.filter((name) => typeof rows[0][name] === "string");
    payload[table] = Object.fromEntries(
      names.map((name) => [
        name,
        rows.map((row) =>
          texts.includes(name) ? intern(row[name]) : row[name],
        ),
      ]),
    );
    if ("cells_kind" in payload[table]) {
      payload[table].cells_kind = payload[table].cells_kind.map((kinds) =>
        kinds.map(intern),
      );
      texts.push("cells_kind");
    }
    payload.string_columns[table] = texts;
  }
  return payload;
}

/**
 * Return a group. Cells are "node 3", "group 1", "bend", "top" or "bottom"; a link is a path of
 * cell numbers, or an object with its `path` and other fields that differ from the defaults.
 */
export function group({ cells = [], links = [], ...fields }) {
  const parts = cells.map((cell) => cell.split(" "));
  const all = links.map((link) =>
    Array.isArray(link) ? { path: link } : link,
  );
  const column = (name, value) => all.map((link) => link[name] ?? value);
  return {
    ...GROUP,
    ...fields,
    cells_kind: parts.map(([kind]) => kind),
    cells_ref: parts.map(([, ref]) => Number(ref ?? -1)),
    links_path: column("path"),
    links_edges: column("edges", []),
    links_source_port: column("source_port", -1),
    links_target_port: column("target_port", -1),
    links_reversed: column("reversed", 0),
    links_views: column("views", 0),
  };
}

/** Return a scene; nodes, groups and storages are numbered, and missing fields get defaults. */
export function makeScene({
  nodes = [{}],
  groups = [{}],
  summary = {},
  ...tables
}) {
  const numbered = (rows, defaults) =>
    rows.map((row, index) => ({ index, ...defaults, ...row }));
  const empty = [
    "edges",
    "saved_badges",
    "parameter_badges",
    "findings",
    "regions",
    "diffs",
    "spans",
    "memory",
  ];
  const others = [
    "lines",
    "storages",
    "storage_events",
    "modules",
    "changes",
    "saved_diffs",
  ];
  return toScene(
    makePayload(
      {
        ...Object.fromEntries([...empty, ...others].map((name) => [name, []])),
        ...tables,
        groups: numbered(groups, GROUP).map((row) => ({
          ...row,
          parent: row.index ? row.parent : -1,
        })),
        nodes: numbered(nodes, NODE),
      },
      { end_ns: 0, ...summary },
    ),
  );
}

/** Return the index of a scene. */
export function makeIndex(tables) {
  return indexScene(makeScene(tables));
}
