// Anthropic's Claude Code, started by `ml launch`: check.mjs URL KEYED_URL KEY.
//
// Its model follows a script, so that the session is the same each time: it reads a file, edits it and
// runs a command.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const [, keyedUrl, key] = process.argv.slice(2);
const here = path.dirname(fileURLToPath(import.meta.url));
const home = path.resolve("home");
const project = path.resolve("project");
for (const folder of [home, project]) {
  fs.rmSync(folder, { recursive: true, force: true });
  fs.mkdirSync(folder);
}
const settings = path.join(home, ".claude", "settings.json");
fs.mkdirSync(path.dirname(settings));
const own = '{"model": "somebody-elses"}\n';
fs.writeFileSync(settings, own);
const note = path.join(project, "note.txt");

const env = { ...process.env, HOME: home, ANTHROPIC_API_KEY: "for-another-server" };
env.PATH = `${path.join(here, "node_modules", ".bin")}:${process.env.PATH}`;
const claude = path.join(here, "node_modules", ".bin", "claude");
const start = (program, args, more = {}) =>
  spawnSync(program, args, {
    cwd: project,
    env: { ...env, ...more },
    stdio: ["ignore", "pipe", "pipe"],
    encoding: "utf8",
    timeout: 120_000,
  });
const launch = (url, args, more) =>
  start(process.env.ML_PROGRAM, ["launch", "claude", "--url", url, "--", ...args], more);

const script = [
  { call: "Read", arguments: { file_path: note } },
  { call: "Edit", arguments: { file_path: note, old_string: "wrold", new_string: "world" } },
  { call: "Bash", arguments: { command: "wc -c < note.txt > count.txt", description: "Count" } },
  { say: "The note is mended." },
];
fs.writeFileSync("script.json", JSON.stringify(script));
const flags = ["-p", "Mend the note", "--allowedTools", "Read,Edit,Bash", "--output-format", "json"];

function mended(session) {
  const said = session.stdout + session.stderr;
  assert.equal(session.status, 0, said);
  const result = JSON.parse(session.stdout.slice(session.stdout.indexOf("{")));
  assert.equal(result.result, "The note is mended.", said);
  assert.deepEqual(Object.keys(result.modelUsage), ["scripted"]);
  assert.equal(fs.readFileSync(note, "utf8"), "hello world\n", said);
  assert.equal(fs.readFileSync(path.join(project, "count.txt"), "utf8").trim(), "12");
}

const server = spawn(process.env.ML_SCRIPTED, ["script.json"], { stdio: ["ignore", "ignore", "pipe"] });
try {
  const { value: line } = await createInterface(server.stderr)[Symbol.asyncIterator]().next();
  const url = line.match(/http:\S+/)[0];
  fs.writeFileSync(note, "hello wrold\n");
  mended(launch(url, flags));
  assert.equal(fs.readFileSync(settings, "utf8"), own, "the user's settings are as they were");

  // Set up by hand as its manual says, without what `ml launch` adds, it goes on as well.
  fs.writeFileSync(note, "hello wrold\n");
  const byHand = { ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: "none", ANTHROPIC_MODEL: "scripted" };
  const session = start(claude, flags, { ...byHand, ANTHROPIC_API_KEY: "" });
  mended(session);
} finally {
  server.kill();
}

const locked = launch(keyedUrl, ["--version"]);
assert.equal(locked.status, 1);
assert.match(locked.stderr, /ML_LAUNCH_API_KEY/);
const open = launch(keyedUrl, ["--version"], { ML_LAUNCH_API_KEY: key });
assert.equal(open.status, 0, open.stderr);
console.log(`${open.stdout.trim()}: a file was read and edited, and a command was run`);
