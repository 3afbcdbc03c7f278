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
import { build, transform } from "esbuild";
import { ABBREVIATIONS } from "./viewer/style/view_css_added_by_build.js";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../autogradviz/render/static"));
mkdirSync(target, { recursive: true });

/** @type {import("esbuild").Plugin} that makes style sheets of views and of the shell parts of the script */
const viewStyles = {
  name: "view-styles",
  setup: ({ onLoad }) =>
    onLoad({ filter: /[\\/](views|shell)[\\/].*\.css$/ }, async ({ path }) => {
      const text = readFileSync(path, "utf8");
      const { code } = await transform(text, { loader: "css", minify: true, charset: "ascii" });
      const letter = ABBREVIATIONS.find(([each]) => code.includes(each));
      if (letter) throw new Error(`${path} contains the abbreviation ${letter}`);
      const short = ABBREVIATIONS.reduce((text, [to, from]) => text.replaceAll(from, to), code);
      const list = JSON.stringify(join(here, "viewer/style/view_css_added_by_build.js"));
      const contents = `import { viewStyles } from ${list};\nviewStyles.push(${JSON.stringify(short.trim())});`;
      return { contents, loader: "js" };
    }),
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
    plugins: [viewStyles],
    // Frequent names of own objects, which no payload, page or host reads.
    mangleProps:
      /^(scene|sceneIndex|subscribe|palette|store|element|scroller|tooltip|hovered|resizer|positionOf|timeAt|schedule|attrs|surface|placement|chosen|grouping|savedTensors|storageOf|boxHeight|storageEvents|legendWidth|atPeak|badgeTint|showLine|spacer|layers)$/,
    // The viewer has 350 calls of these, whose names the build cannot shorten.
    inject: [join(here, "viewer/math_names_added_by_build.js")],
    define: {
      "Math.max": "agvMax",
      "Math.min": "agvMin",
      "Math.round": "agvRound",
      "Math.abs": "agvAbs",
    },
    ...options,
  });
  return outputFiles;
};

// The layout worker runs the source text of this function (viewer/layout/worker.js).
const start = "var autogradviz=(()=>{";
const whole = {
  globalName: "autogradviz",
  footer: { js: "export default autogradviz.default;" },
};
const scripts = [
  ...(await bundle("viewer", "main.js", whole)),
  ...(await bundle("live", "live/main.js", whole)),
];
for (const { path, text } of scripts) {
  if (path.endsWith(".css")) writeFileSync(path, text);
  else if (!text.includes(start)) throw new Error(`the bundle does not contain ${start}`);
  else writeFileSync(path, text.replace(start, "var autogradviz=(function agvBundle(){"));
}

// Only pages of runs have this one; it follows the script of the viewer.
const run = await bundle("run", "distributed_run/main.js", { globalName: "autogradvizRun" });
for (const { path, text } of run) writeFileSync(path, text);
