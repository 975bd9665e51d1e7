#!/usr/bin/env python3
"""What drafts are worth on answers of a model: tokens a second with them, by those without, in turns.

  python benches/drafts.py ML MODEL [--tokens 160] [--turns 3] [--drafts 4,8] [--flag=--batch-invariant]

ML is the program, MODEL what `ml generate --model` takes. An answer repeats code of its prompt; the others are a list, numbers and a story.
Each line has the median of the turns, the draft tokens that were verified and accepted, and whether the text is that without drafts.
"""
import argparse, json, statistics, subprocess

CODE = '''def area(width, height):
    """Returns the area of a rectangle."""
    return width * height

def perimeter(width, height):
    """Returns the perimeter of a rectangle."""
    return 2 * (width + height)

def diagonal(width, height):
    """Returns the diagonal of a rectangle."""
    return (width ** 2 + height ** 2) ** 0.5
'''
PROMPTS = {
    "code": f"Repeat this code exactly as it is:\n```python\n{CODE}```\n",
    "list": "List forty animals, one each line.",
    "numbers": "Write the numbers from one to sixty in words.",
    "story": "Tell me a story about a fox and a raven.",
}


def answer(args, prompt, drafts):
    command = [args.ml, "generate", "--model", args.model, "--max-tokens", str(args.tokens), "--temperature", "0", "--json"] + args.flag
    done = subprocess.run(command + ["--draft-tokens", str(drafts), prompt], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ml")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--drafts", default="4,8")
    parser.add_argument("--flag", action="append", default=[], help="one more for `ml generate`")
    args = parser.parse_args()
    lengths = [0] + [int(length) for length in args.drafts.split(",")]
    for name, prompt in PROMPTS.items():
        found = {length: [] for length in lengths}
        for _ in range(args.turns):
            for length in lengths:
                found[length].append(answer(args, prompt, length))
        rate = lambda length: statistics.median(one["metrics"]["decode_tokens_per_second"] for one in found[length])
        line = f"{name}: {rate(0):.1f} tokens/s"
        for length in lengths[1:]:
            metrics = found[length][0]["metrics"]
            counts = f"{metrics['accepted_draft_tokens']} of {metrics['draft_tokens']}"
            is_same = all(one["text"] == found[0][0]["text"] for one in found[length])
            line += f"; {length}: {rate(length) / rate(0):.2f} ({counts}{'' if is_same else ', another text'})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
