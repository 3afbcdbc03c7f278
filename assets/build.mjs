// Bundles the viewer, and the live view, into the files that the Python package ships.
//
//   node build.mjs [folder]
//
// A widget loads the script as an ES module. A report drops the last line, the export, and uses
// the global variable, so that one checked-in file serves both.

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../autogradviz/render/static"));
mkdirSync(target, { recursive: true });

// Names of the viewer's own properties that are short in the bundle. None is part of a payload, of
// the document, or written as text.
const OWN_NAMES =
  "sceneIndex savedTensors storageEvents storageOf positionOf timeAt placement scroller resizer " +
  "narrowness gradientPathButton compiledRegionOf chooseFinding showCompiled showFinding showRegion " +
  "zoomToGroup pendingFit layoutStatus transitionStart linesAlpha breadcrumbs minimap announcer " +
  "boxHeight boxWidth badgeTint nodeTint playButton profileRange rangeText lifelines lifetimes " +
  "makeAxisSwitch minLength grouping spacer palette hovered offsets coloring scene " +
  "attrs schedule boxes room related moved layers clipId mount sourceX dashes sideways rowOf " +
  "failedAt redraw isBend shows measuring corners folded faint whenPlaced rowsHeight keyHelp " +
  "chevron totals stub rank plot layOut ribbons bars zoomTo trackY nextFinding focusGroup " +
  "worldAt restyle hasView";

const { outputFiles } = await build({
  entryPoints: { viewer: join(here, "viewer/main.js"), live: join(here, "viewer/live/main.js") },
  outdir: target,
  write: false,
  bundle: true,
  minify: true,
  charset: "ascii",
  mangleProps: new RegExp(`^(?:${OWN_NAMES.replaceAll(" ", "|")})$`),
  format: "iife",
  globalName: "autogradviz",
  footer: { js: "export default autogradviz.default;" },
  target: "es2022",
  legalComments: "none",
});

// The layout worker runs the source text of this function (viewer/layout/worker.js).
const start = "var autogradviz=(()=>{";
for (const { path, text } of outputFiles) {
  if (path.endsWith(".css")) writeFileSync(path, text);
  else if (!text.includes(start)) throw new Error(`the bundle does not contain ${start}`);
  else writeFileSync(path, text.replace(start, "var autogradviz=(function agvBundle(){"));
}
