// Google's Gemini CLI, set up by hand with a server's address alone: check.mjs URL KEYED_URL KEY.
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
fs.mkdirSync(path.join(home, ".gemini"));
const settings = {
  security: { auth: { selectedType: "gemini-api-key" } },
  privacy: { usageStatisticsEnabled: false },
  general: { disableAutoUpdate: true },
};
fs.writeFileSync(path.join(home, ".gemini", "settings.json"), JSON.stringify(settings));

const gemini = (url, apiKey, ...args) =>
  spawnSync(path.join(here, "node_modules", ".bin", "gemini"), args, {
    cwd: project,
    stdio: ["ignore", "pipe", "pipe"],
    encoding: "utf8",
    timeout: 120_000,
    env: {
      ...process.env,
      HOME: home,
      GOOGLE_GEMINI_BASE_URL: url,
      GEMINI_API_KEY: apiKey,
      GEMINI_CLI_TRUST_WORKSPACE: "true",
    },
  });

const script = [
  { call: "read_file", arguments: { file_path: "note.txt" } },
  {
    call: "replace",
    arguments: { file_path: "note.txt", instruction: "Mend the word", old_string: "wrold", new_string: "world" },
  },
  { call: "run_shell_command", arguments: { command: "wc -c < note.txt > count.txt", description: "Counts" } },
  { say: "The note is mended." },
];
fs.writeFileSync("script.json", JSON.stringify(script));
fs.writeFileSync(path.join(project, "note.txt"), "hello wrold\n");

const server = spawn(process.env.ML_SCRIPTED, ["script.json"], { stdio: ["ignore", "ignore", "pipe"] });
try {
  const { value: line } = await createInterface(server.stderr)[Symbol.asyncIterator]().next();
  const url = line.match(/http:\S+/)[0];
  const flags = ["--model", "scripted", "--approval-mode", "yolo", "--prompt", "Mend the note"];
  const session = gemini(url, "none", ...flags);
  const said = session.stdout + session.stderr;
  assert.equal(session.status, 0, said);
  assert.match(session.stdout, /The note is mended\./, said);
  assert.equal(fs.readFileSync(path.join(project, "note.txt"), "utf8"), "hello world\n", said);
  assert.equal(fs.readFileSync(path.join(project, "count.txt"), "utf8").trim(), "12");
} finally {
  server.kill();
}

// Its instructions alone are longer than the built-in model's context, which the error says; a wrong key
// is told before that.
const story = ["--model", "demo", "--prompt", "Tell me a story"];
const long = gemini(keyedUrl, key, ...story);
assert.notEqual(long.status, 0);
assert.match(long.stdout + long.stderr, /the context takes \d+/);
const locked = gemini(keyedUrl, "wrong", ...story);
assert.notEqual(locked.status, 0);
assert.match(locked.stdout + locked.stderr, /UNAUTHENTICATED/);

const { version } = JSON.parse(
  fs.readFileSync(path.join(here, "node_modules", "@google", "gemini-cli", "package.json"), "utf8"),
);
console.log(`gemini-cli ${version}: a file was read and edited, and a command was run`);
