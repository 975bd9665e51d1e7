#!/usr/bin/env python3
"""How much faster several ranks compute one model than one process does: a row of docs/distributed.md for each figure.

    python3 benches/ranks.py --ml target/release/ml --ranks 2 -- --shape llama3.1-8b -p 2048 -n 128 -c 64 -r 3

What stands behind `--` goes to `ml bench`. All runs follow each other at once, so that they see the same machine. With
`--without WORDS`, ranks are measured once more with ML_RANKS_WITHOUT=WORDS. With `--mlx-lm`, mlx-lm computes the same sizes
in as many ranks, started as `mlx.launch --backend nccl` starts them: one prompt of `-p` ids, then `-n` ids.
"""

import argparse
import json
import os
import subprocess
import sys

MLX_LM = r"""
import importlib, json, sys, time
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
config, count, new = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
group = mx.distributed.init(backend="nccl", strict=True)
module = importlib.import_module("mlx_lm.models." + config["model_type"])
model = module.Model(module.ModelArgs.from_dict(config))
mx.random.seed(1)
model.shard(group)
model.update(tree_map(lambda p: (mx.random.normal(p.shape) * 0.02 if p.ndim > 1 else p).astype(mx.bfloat16), model.parameters()))
mx.eval(model.parameters())
mx.eval(mx.distributed.all_sum(mx.ones(1)))
ids = mx.array([i * 7919 % 50000 + 5 for i in range(count)])
def once(new):
    began = time.perf_counter()
    first = None
    for _ in generate_step(ids, model, max_tokens=new, prefill_step_size=max(count, 1)):
        first = first or time.perf_counter()
    return count / (first - began), (new - 1) / (time.perf_counter() - first)
once(8)
prefill, decode = once(new)
if group.rank() == 0:
    print(json.dumps({"prefill": prefill, "decode": decode, "peak": mx.get_peak_memory()}))
"""


def measured(ml, arguments, variables=None):
    command = [ml, "bench", *arguments, "--json"]
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def speeds(report):
    """The figures of a report by their names: tokens a second and how far they vary."""
    found = {}
    for test in report["results"]:
        found[test["test"]] = (test["tokens_per_second"], test["stddev"])
        if test.get("decode_tokens_per_second"):
            found[f"{test['test']}, decode"] = (test["decode_tokens_per_second"], 0.0)
    return found


def told(figure):
    value, deviation = figure
    return f"{value:.1f} ± {deviation:.1f}" if deviation else f"{value:.1f}"


def of_mlx_lm(ml, ranks, arguments):
    """What mlx-lm makes of the sizes of `arguments`, in so many ranks with a GPU each."""
    told = argparse.ArgumentParser()
    told.add_argument("-p", default="512")
    told.add_argument("-n", default="128")
    # How many at once, and how often, is no size.
    told.add_argument("-c")
    told.add_argument("-r")
    told, shape = told.parse_known_args(arguments)
    config = subprocess.run([ml, "bench", *shape, "--print-config"], capture_output=True, text=True, check=True).stdout
    command = [sys.executable, "-c", MLX_LM, config, told.p.split(",")[0], told.n]
    started = []
    for rank in range(ranks):
        variables = {"MLX_RANK": str(rank), "MLX_WORLD_SIZE": str(ranks), "NCCL_HOST_IP": "127.0.0.1",
                     "NCCL_PORT": "12345", "CUDA_VISIBLE_DEVICES": str(rank), "NCCL_NVLS_ENABLE": "0",
                     "NCCL_SOCKET_IFNAME": "lo"}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}))
    printed = [process.communicate()[0] for process in started]
    return json.loads(printed[0].strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ml", default="target/release/ml", help="the program")
    parser.add_argument("--ranks", type=int, default=2, help="how many")
    parser.add_argument("--without", metavar="WORDS", help="also with ML_RANKS_WITHOUT=WORDS")
    parser.add_argument("--mlx-lm", action="store_true", help="beside mlx-lm")
    parser.add_argument("arguments", nargs="*", help="what `ml bench` is told")
    args = parser.parse_args()
    ranks = ["--ranks", str(args.ranks), *args.arguments]
    runs = [("one", measured(args.ml, args.arguments)), (f"{args.ranks} ranks", measured(args.ml, ranks))]
    if args.without:
        without = {"ML_RANKS_WITHOUT": args.without}
        runs.append((f"without {args.without}", measured(args.ml, ranks, without)))
    alone = runs[0][1]
    print(f"{alone['model']}, {alone['dtype']}, {alone['device']}")
    head = ["figure"] + [name for name, _ in runs] + [f"{name} / one" for name, _ in runs[1:]]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    all_speeds = [speeds(report) for _, report in runs]
    for name in all_speeds[0]:
        figures = [each[name] for each in all_speeds]
        ratios = [f"{figure[0] / figures[0][0]:.2f}" for figure in figures[1:]]
        print("| " + " | ".join([f"{name}, tokens/s", *map(told, figures), *ratios]) + " |")
    for name, field in [("weights of a rank, GiB", "weight_bytes"), ("peak of the first, GiB", "peak_memory_bytes"),
                        ("held by the first, GiB", "held_bytes")]:
        sizes = [(report[field] or 0) / 2**30 for _, report in runs]
        ratios = [f"{size / sizes[0]:.2f}" if sizes[0] else "" for size in sizes[1:]]
        print("| " + " | ".join([name, *(f"{size:.2f}" for size in sizes), *ratios]) + " |")
    if args.mlx_lm:
        found = of_mlx_lm(args.ml, args.ranks, args.arguments)
        print(f"mlx-lm, {args.ranks} ranks: prefill {found['prefill']:.1f}, decode {found['decode']:.1f} tokens/s, "
              f"peak {found['peak'] / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
