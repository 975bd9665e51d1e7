// Measures `ml bench` and llama.cpp on one GGUF file, turn by turn, and prints the medians as JSON.
//
//   npm install node-llama-cpp@3.22.1
//   cargo build --release --bin ml
//   node benches/beside_node_llama_cpp.mjs FILE.gguf [TURNS] [PROMPT] [NEW] [ML]
//
// node-llama-cpp carries builds of llama.cpp for several processors, and takes the best one.
// Nothing is compiled. It is found from the current folder. Both programs use two threads, and
// warm up in each turn. `beside_llama.py` does the same with a llama-bench that was built here.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [file, turns = "4", prompt = "128", made = "48", ml = "target/release/ml"] = process.argv.slice(2);
const [promptLength, newTokens] = [Number(prompt), Number(made)];
const found = createRequire(`${process.cwd()}/`).resolve("node-llama-cpp");
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(found));

const llama = await getLlama({ gpu: false, build: "never", maxThreads: 2, logLevel: LlamaLogLevel.error });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({ contextSize: 2048, threads: 2, batchSize: 512, flashAttention: true });
const sequence = context.getSequence();

/** Tokens per second of a prompt and after it. */
async function theirs() {
  let rates;
  for (let turn = 0; turn < 3; turn += 1) {
    await sequence.clearHistory();
    const ids = Array.from({ length: promptLength }, (_, i) => 1000 + i);
    const start = performance.now();
    let [count, first, last] = [0, 0, 0];
    for await (const _ of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
      last = performance.now();
      if (!count) first = last;
      count += 1;
      if (count >= newTokens) break;
    }
    rates = { prefill: (promptLength * 1000) / (first - start), decode: ((count - 1) * 1000) / (last - first) };
  }
  return rates;
}

function ours() {
  const told = execFileSync(ml, ["bench", "--json", "--quiet", "--model", file, "--threads", "2",
    "--prompt", prompt, "--new", made, "--repeat", "1"], { stdio: ["ignore", "pipe", "ignore"] });
  const rates = Object.fromEntries(JSON.parse(told).results.map((one) => [one.test.slice(0, 2), one.tokens_per_second]));
  return { prefill: rates.pp, decode: rates.tg };
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const all = { ml: [], "llama.cpp": [] };
for (let turn = 0; turn < Number(turns); turn += 1) {
  all["llama.cpp"].push(await theirs());
  all.ml.push(ours());
}
const medians = {};
for (const what of ["prefill", "decode"]) {
  const [a, b] = [all.ml, all["llama.cpp"]].map((turnsOf) => median(turnsOf.map((turn) => turn[what])));
  medians[what] = { ml: a, "llama.cpp": b, ratio: a / b };
}
console.log(JSON.stringify({ medians, turns: all }, null, 1));
process.exit(0);
