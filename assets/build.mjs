// Bundles the viewer, the live view and the view of runs into the files that the Python package
// ships.
//
//   node build.mjs [folder]
//
// A widget loads the script as an ES module. A report drops the last line, the export, and uses
// the global variable, so that one checked-in file serves both.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
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
  "worldAt restyle hasView recomputeNs openRecording addedNs arrivedMs drawCharts drawFindings " +
  "findingRow fitted fromZero isMain openPlace placeOf pin subscribe destroy scheduler " +
  "tooltip descending reveal share element peak store camera pen low high isWritten elements " +
  "differences stations station showTrail setTrail chooseEntry showEntry showLine goTo askHost " +
  "chosen times surface targetX recomputeRangeNs proven setPressed tracks observer " +
  "active trail family range labels current ctx charts makeBar showStep costCells newest drawStatus breaks items points parts main axis frame results align distance profile level anchor packed prediction siblings hasSide";

// The same for the viewer of runs.
const RUN_NAMES =
  "rowOf selectRank listeners images rowsHeight zoomBy canOpen spacer scroller announcer mutation " +
  "surface text2 text3 line2 badgeTint nodeTint recompute backward family palette schedule row mode " +
  "zoom tooltip picture observer draw paint room weight align showGroup element view";

// Functions that are called often: the bundle has them under one letter or two each.
const SHORT_FUNCTIONS = {
  ...Object.fromEntries(
    ["max", "min", "round", "floor", "ceil", "abs"].map((name) => [
      `Math.${name}`,
      `math${name[0].toUpperCase()}${name.slice(1)}`,
    ]),
  ),
  "Object.entries": "objectEntries",
  "Object.assign": "objectAssign",
  "Array.from": "arrayFrom",
  requestAnimationFrame: "nextFrame",
};

// The same for methods and statements, and for elements of the most frequent kinds.
const OBJECT = "(?<![\\w.\\])#?])((?:\\w+\\.)*\\w+)";
/** @type {[RegExp, string][]} */
const SHORT_CALLS = [
  [/\bh\(\s*"(div|span|p|td|code|h3)",\s*/g, "$1Element("],
  [
    new RegExp(`${OBJECT}\\.(replaceChildren|setAttribute|getBoundingClientRect)\\(`, "g"),
    "$2Of($1, ",
  ],
  [new RegExp(`${OBJECT}\\.classList\\.toggle\\(`, "g"), "toggleClassOf($1, "],
  [
    /(?<![\w\])])\[((?:[^[\]]|\[[^[\]]*\])*)\]\s*\.filter\(Boolean\)\s*\.join\(" · "\)/g,
    "joinParts([$1])",
  ],
  [/window\.devicePixelRatio \|\| 1/g, "pixelRatio()"],
  [/^( *)ctx\.fillStyle = ([^;]+);\n\1ctx\.fillRect\(/gm, "$1fillRectOf(ctx, $2, "],
  [/^( *)ctx\.strokeStyle = ([^;]+);\n\1ctx\.lineWidth = ([^;]+);/gm, "$1setStroke(ctx, $2, $3);"],
  [/^( *)ctx\.lineWidth = ([^;]+);\n\1ctx\.strokeStyle = ([^;]+);/gm, "$1setStroke(ctx, $3, $2);"],
  [
    /^( *)ctx\.beginPath\(\);\n\1ctx\.moveTo\(([^;]+)\);\n\1ctx\.lineTo\(([^;]+)\);\n\1ctx\.stroke\(\);/gm,
    "$1strokeLine(ctx, $2, $3);",
  ],
];

// `h` (viewer/dom.js) adds the prefix of the names of classes, so the bundle leaves it out.
const shortNames = {
  name: "short-names",
  /** @param {import("esbuild").PluginBuild} build */
  setup({ onLoad }) {
    onLoad({ filter: /assets[\\/]viewer[\\/].*\.js$/ }, ({ path }) => {
      const source = readFileSync(path, "utf8");
      const classes = source.replace(/\b(?:class: |h\(\s*"\w+",\s*)(["`])[^"`\n]*\1/g, (names) =>
        names.replaceAll("agv-", ""),
      );
      const contents = SHORT_CALLS.reduce(
        (text, [call, short]) => text.replace(call, short),
        classes,
      );
      return { contents };
    });
  },
};

/**
 * @param {string} name of the files
 * @param {string} entry
 * @param {import("esbuild").BuildOptions} options
 */
const bundle = async (name, entry, options) => {
  const { outputFiles } = await build({
    entryPoints: { [name]: join(here, "viewer", entry) },
    outdir: target,
    write: false,
    bundle: true,
    minify: true,
    charset: "ascii",
    format: "iife",
    target: "es2022",
    legalComments: "none",
    plugins: [shortNames],
    define: SHORT_FUNCTIONS,
    inject: [join(here, "short_functions.js")],
    ...options,
  });
  return outputFiles;
};

// The layout worker runs the source text of this function (viewer/layout/worker.js).
const start = "var autogradviz=(()=>{";
const whole = {
  globalName: "autogradviz",
  mangleProps: new RegExp(`^(?:${OWN_NAMES.replaceAll(" ", "|")})$`),
  footer: { js: "export default autogradviz.default;" },
};
const scripts = [
  ...(await bundle("viewer", "main.js", whole)),
  ...(await bundle("live", "live/main.js", whole)),
];
for (const { path, text } of scripts) {
  if (path.endsWith(".css")) writeFileSync(path, text.replace(/(--[\w-]+): /g, "$1:"));
  else if (!text.includes(start)) throw new Error(`the bundle does not contain ${start}`);
  else writeFileSync(path, text.replace(start, "var autogradviz=(function agvBundle(){"));
}

// Only pages of runs have this one; it follows the script of the viewer.
const run = await bundle("run", "distributed_run/main.js", {
  globalName: "autogradvizRun",
  mangleProps: new RegExp(`^(?:${RUN_NAMES.replaceAll(" ", "|")})$`),
});
for (const { path, text } of run) writeFileSync(path, text);
