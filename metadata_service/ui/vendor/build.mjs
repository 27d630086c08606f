// Bundles each library into ../static, with the licences of what is in it, and notes the digests: `make vendor`.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const STATIC = "../static/";
const BUNDLES = ["codemirror"];

for (const name of BUNDLES) {
  const made = await build({
    entryPoints: [`${name}.js`], outfile: `${STATIC}${name}.min.js`, bundle: true, minify: true, format: "esm", target: "es2022",
    charset: "utf8", legalComments: "none", metafile: true,
  });
  const packages = new Set(Object.keys(made.metafile.inputs).map((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1]));
  const licences = [...packages].filter(Boolean).sort().map((each) => {
    const folder = `node_modules/${each}/`;
    const file = readdirSync(folder).find((found) => /^licen[cs]e/i.test(found));
    return `${each} ${JSON.parse(readFileSync(`${folder}package.json`)).version}\n\n${readFileSync(folder + file, "utf8").trim()}\n`;
  });
  writeFileSync(`${STATIC}${name}.LICENSE.txt`, licences.join("\n---\n\n"));
}

const scripts = readdirSync(STATIC).filter((each) => each.endsWith(".min.js")).sort();
const digest = (file) => createHash("sha256").update(readFileSync(STATIC + file)).digest("hex");
writeFileSync(`${STATIC}vendored.sha256`, scripts.map((each) => `${digest(each)}  ${each}\n`).join(""));
