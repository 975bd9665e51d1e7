#!/usr/bin/env python3
"""How much faster several ranks compute one model than one process does: a row of docs/distributed.md for each figure.

    python3 benches/ranks.py --ml target/release/ml --ranks 2 -- --shape llama3.1-8b -p 2048 -n 128 -c 64 -r 3

What stands behind `--` goes to `ml bench`. All runs follow each other at once, so that they see the same machine. With
`--without`, ranks are measured once more with sums operation by operation (ML_RANKS_WITHOUT=replay,dispatch).
"""

import argparse
import json
import os
import subprocess
import sys


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ml", default="target/release/ml", help="the program")
    parser.add_argument("--ranks", type=int, default=2, help="how many")
    parser.add_argument("--without", action="store_true", help="also with sums operation by operation")
    parser.add_argument("arguments", nargs="*", help="what `ml bench` is told")
    args = parser.parse_args()
    ranks = ["--ranks", str(args.ranks), *args.arguments]
    runs = [("one", measured(args.ml, args.arguments)), (f"{args.ranks} ranks", measured(args.ml, ranks))]
    if args.without:
        by_one = {"ML_RANKS_WITHOUT": "replay,dispatch"}
        runs.append(("sums one by one", measured(args.ml, ranks, by_one)))
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
    for name, field in [("weights of a rank, GiB", "weight_bytes"), ("peak of the first, GiB", "peak_memory_bytes")]:
        sizes = [report[field] / 2**30 for _, report in runs]
        ratios = [f"{size / sizes[0]:.2f}" for size in sizes[1:]]
        print("| " + " | ".join([name, *(f"{size:.2f}" for size in sizes), *ratios]) + " |")


if __name__ == "__main__":
    main()
