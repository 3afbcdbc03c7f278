// Bundles the viewer into the two files that the Python package ships.
//
//   node build.mjs [folder]
//
// One script serves both hosts: a widget loads it as an ES module (the footer), a report drops
// the footer's line and uses the global, so that one checked-in file is enough.

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../autogradviz/render/static"));
mkdirSync(target, { recursive: true });

const { outputFiles } = await build({
  entryPoints: [join(here, "viewer/main.js")],
  outfile: join(target, "viewer.js"),
  write: false,
  bundle: true,
  minify: true,
  charset: "ascii",
  format: "iife",
  globalName: "autogradviz",
  footer: { js: "export default autogradviz.default;" },
  target: "es2022",
  legalComments: "none",
});

// The bundle knows its own text by this name: the layout's thread runs it (layouter.js).
const start = "var autogradviz=(()=>{";
const [script] = outputFiles;
if (!script.text.includes(start)) throw new Error(`the bundle does not begin with ${start}`);
const named = script.text.replace(start, "var autogradviz=(function agvBundle(){");
writeFileSync(script.path, named);

await build({
  entryPoints: [join(here, "viewer/style.css")],
  outfile: join(target, "viewer.css"),
  bundle: true,
  minify: true,
  charset: "ascii",
  target: "es2022",
});
