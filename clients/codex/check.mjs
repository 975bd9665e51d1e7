// OpenAI's Codex, started by `ml launch` and set up by hand: check.mjs URL KEYED_URL KEY.
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
const settings = path.join(home, ".codex", "config.toml");
fs.mkdirSync(path.dirname(settings));
const own = 'model = "somebody-elses"\n';
fs.writeFileSync(settings, own);

const env = { ...process.env, HOME: home, CODEX_HOME: path.dirname(settings) };
delete env.OPENAI_API_KEY;
env.PATH = `${path.join(here, "node_modules", ".bin")}:${process.env.PATH}`;
const session = () => ({ cwd: project, stdio: ["ignore", "pipe", "pipe"], encoding: "utf8", timeout: 120_000 });
const launch = (url, args, more = {}) =>
  spawnSync(process.env.ML_PROGRAM, ["launch", "codex", "--url", url, "--", ...args], {
    ...session(),
    env: { ...env, ...more },
  });

const run = (cmd) => ({ call: "exec_command", arguments: { cmd } });
const patch = "*** Begin Patch\n*** Update File: note.txt\n@@\n-hello wrold\n+hello world\n*** End Patch";
const script = [
  run("cat note.txt"),
  run(`apply_patch <<'EOF'\n${patch}\nEOF`),
  run("wc -c < note.txt > count.txt"),
  { say: "The note is mended." },
];
fs.writeFileSync("script.json", JSON.stringify(script));
const flags = ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "Mend the note"];

/** Has `start` begin a session with a server that follows the script, and looks at what it did. */
async function mends(start) {
  fs.writeFileSync(path.join(project, "note.txt"), "hello wrold\n");
  fs.rmSync(path.join(project, "count.txt"), { force: true });
  const server = spawn(process.env.ML_SCRIPTED, ["script.json"], { stdio: ["ignore", "ignore", "pipe"] });
  try {
    const { value: line } = await createInterface(server.stderr)[Symbol.asyncIterator]().next();
    const session = start(line.match(/http:\S+/)[0]);
    const said = session.stdout + session.stderr;
    assert.equal(session.status, 0, said);
    assert.match(session.stdout, /The note is mended\./, said);
    // What the command printed went through the model's conversation.
    assert.match(said, /hello wrold/);
    assert.equal(fs.readFileSync(path.join(project, "note.txt"), "utf8"), "hello world\n", said);
    assert.equal(fs.readFileSync(path.join(project, "count.txt"), "utf8").trim(), "12");
  } finally {
    server.kill();
  }
}

await mends((url) => launch(url, flags));
// It may add to its settings which folders it trusts.
assert.ok(fs.readFileSync(settings, "utf8").startsWith(own), "the user's settings are as they were");

// Set up by hand, with nothing but the address: it also offers a search of its own.
await mends((url) => {
  const provider = `base_url = "${url}/v1"\nwire_api = "responses"\nname = "mine"\n`;
  const chosen = 'model = "scripted"\nmodel_provider = "mine"\n[model_providers.mine]\n';
  fs.writeFileSync(settings, chosen + provider);
  return spawnSync("codex", flags, { ...session(), env });
});
fs.writeFileSync(settings, own);

const locked = launch(keyedUrl, ["--version"]);
assert.equal(locked.status, 1);
assert.match(locked.stderr, /ML_LAUNCH_API_KEY/);
const open = launch(keyedUrl, ["--version"], { ML_LAUNCH_API_KEY: key });
assert.equal(open.status, 0, open.stderr);
console.log(`${open.stdout.trim()}: a file was read and edited, and a command was run`);
