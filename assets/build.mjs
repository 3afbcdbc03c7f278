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

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../autogradviz/render/static"));
mkdirSync(target, { recursive: true });

const shortNames = join(here, "viewer/short_names_added_by_build.js");

const list = join(here, "viewer/style/view_css_added_by_build.js");

/**
 * Return a plugin that makes style sheets of views and of the shell parts of the script.
 *
 * @param {string[] | null} sheets minified, null for a script that only lists their paths
 * @returns {import("esbuild").Plugin}
 */
const viewStyles = (sheets) => ({
  name: "view-styles",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]assets[\\/]viewer[\\/](views|shell)[\\/].*\.css$/ }, ({ path }) => {
      const push = `viewStyles.push(${JSON.stringify(path)});`;
      const contents = `import { viewStyles } from ${JSON.stringify(list)};\n${push}`;
      return { contents: sheets ? "" : contents, loader: "js" };
    });
    onLoad({ filter: /view_css_added_by_build\.js$/ }, () =>
      sheets ? { contents: `export const viewStyles = ${JSON.stringify(sheets)};` } : undefined,
    );
  },
});

/**
 * @param {string} path of a style sheet
 * @returns {Promise<string>}
 */
const minified = async (path) => {
  const text = readFileSync(path, "utf8");
  return (await transform(text, { loader: "css", minify: true, charset: "ascii" })).code.trim();
};

/**
 * @param {string} name of the files
 * @param {string} entry
 * @param {import("esbuild").BuildOptions} options
 */
const bundle = async (name, entry, options) => {
  const settings = {
    entryPoints: { [name]: join(here, "viewer", entry) },
    outdir: target,
    write: false,
    bundle: true,
    minify: true,
    charset: "ascii",
    format: "iife",
    target: "es2022",
    legalComments: "none",
    // The viewer has 400 calls of these, whose names the build cannot shorten.
    inject: [shortNames],
    define: {
      "Math.max": "agvMax",
      "Math.min": "agvMin",
      "Math.round": "agvRound",
      "Math.abs": "agvAbs",
      "Math.floor": "agvFloor",
      "Math.ceil": "agvCeil",
      "Object.entries": "agvEntries",
      "Object.assign": "agvAssign",
      "Object.values": "agvValues",
    },
    ...options,
  };
  // Style sheets that follow each other are compressed better than with scripts between them.
  const { outputFiles } = await build({ ...settings, minify: false, plugins: [viewStyles(null)] });
  const script = outputFiles.find(({ path }) => path.endsWith(".js"))?.text ?? "";
  const paths = [...script.matchAll(/viewStyles\d*\.push\((".*?")\);/g)];
  const sheets = await Promise.all(paths.map(([, path]) => minified(JSON.parse(path))));
  return (await build({ ...settings, plugins: [viewStyles(sheets)] })).outputFiles;
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
