// Qwen Code, started by `ml launch`: check.mjs URL KEYED_URL KEY.
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
// What its user chose by a dialogue gives way to the launch, and stays.
const settings = path.join(home, ".qwen", "settings.json");
fs.mkdirSync(path.dirname(settings));
const own = { security: { auth: { selectedType: "qwen-oauth" } }, model: { name: "somebody-elses" } };
fs.writeFileSync(settings, JSON.stringify(own));

const env = { ...process.env, HOME: home };
env.PATH = `${path.join(here, "node_modules", ".bin")}:${process.env.PATH}`;
const launch = (url, args, more = {}) =>
  spawnSync(process.env.ML_PROGRAM, ["launch", "qwen", "--url", url, "--", ...args], {
    cwd: project,
    stdio: ["ignore", "pipe", "pipe"],
    encoding: "utf8",
    timeout: 120_000,
    env: { ...env, ...more },
  });

const note = path.join(project, "note.txt");
const script = [
  { call: "read_file", arguments: { file_path: note } },
  { call: "edit", arguments: { file_path: note, old_string: "wrold", new_string: "world" } },
  {
    call: "run_shell_command",
    arguments: { command: "wc -c < note.txt > count.txt", description: "Counts", is_background: false },
  },
  { say: "The note is mended." },
];
fs.writeFileSync("script.json", JSON.stringify(script));
fs.writeFileSync(note, "hello wrold\n");

const server = spawn(process.env.ML_SCRIPTED, ["script.json"], { stdio: ["ignore", "ignore", "pipe"] });
try {
  const { value: line } = await createInterface(server.stderr)[Symbol.asyncIterator]().next();
  const session = launch(line.match(/http:\S+/)[0], ["--approval-mode", "yolo", "--prompt", "Mend the note"]);
  const said = session.stdout + session.stderr;
  assert.equal(session.status, 0, said);
  assert.match(session.stdout, /The note is mended\./, said);
  assert.equal(fs.readFileSync(note, "utf8"), "hello world\n", said);
  assert.equal(fs.readFileSync(path.join(project, "count.txt"), "utf8").trim(), "12");
} finally {
  server.kill();
}
const kept = JSON.parse(fs.readFileSync(settings, "utf8"));
assert.deepEqual([kept.security, kept.model], [own.security, own.model]);

const locked = launch(keyedUrl, ["--version"]);
assert.match(locked.stderr, /set ML_LAUNCH_API_KEY/);
const opened = launch(keyedUrl, ["--version"], { ML_LAUNCH_API_KEY: key });
assert.equal(opened.status, 0, opened.stderr);

const { version } = JSON.parse(
  fs.readFileSync(path.join(here, "node_modules", "@qwen-code", "qwen-code", "package.json"), "utf8"),
);
console.log(`qwen-code ${version}: a file was read and edited, and a command was run`);
