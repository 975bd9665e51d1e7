#!/usr/bin/env python3
"""Writes the tables of docs/benchmarks.md from the result files in benches/results.

  python3 benches/tables.py            # after a change of a result file
  python3 benches/tables.py --check    # fails where the page differs from them

A result file is one run: `machine`, `date`, `commit` that brought the figures, `command` and `figures`. `note` says
what else matters. A figure has a `case`, a `test`, a `unit` and the `tables` that show it, which may be none.
What was measured is `ml`, or `decoding` while all requests decode, or `int8` with activations in 8 bits. `against` has
a `name` and a `value`. A measurement is a number, a list of turns, or an object: a `median` of `low` and `high`, a
`mean` with its `deviation`, or `low` and `high` alone. Texts are shown as they are. `ratio` is that of the run; without
one, it is computed from both numbers.
"""
import argparse
import json
import re
import sys
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/benchmarks.md"
RESULTS = ROOT / "benches/results"
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def shown(measured):
    """A measurement as the page has it, with the digits of its file."""
    if isinstance(measured, list):
        return "; ".join(map(shown, measured))
    if isinstance(measured, dict):
        if "median" in measured:
            return shown(measured["median"])
        if "mean" in measured:
            return f"{shown(measured['mean'])} ± {shown(measured['deviation'])}"
        return f"{shown(measured['low'])}–{shown(measured['high'])}"
    return measured if isinstance(measured, str) else f"{measured:,}"


def with_unit(figure, key):
    """The measurement under `key`, and its unit where that is not tokens/s."""
    if key not in figure:
        return ""
    unit = figure["unit"]
    return shown(figure[key]) + ("" if unit == "tokens/s" else f" {unit}")


def against(figure):
    other = figure.get("against", {})
    return f"{other.get('name', '')} {shown(other.get('value', ''))}".strip()


def centre(measured):
    """The one number that a measurement stands for, or None."""
    if isinstance(measured, dict):
        measured = measured.get("median", measured.get("mean"))
    return measured if isinstance(measured, (int, Decimal)) else None


def ratio(figure):
    if "ratio" in figure:
        return shown(figure["ratio"])
    ours = centre(figure.get("ml", figure.get("decoding")))
    theirs = centre(figure.get("against", {}).get("value"))
    return "" if ours is None or theirs is None else f"{Decimal(ours) / Decimal(theirs):.2f}"


def ours(figure):
    """What `ml` did, whichever way it was counted."""
    return with_unit(figure, "ml" if "ml" in figure else "decoding")


CASE = {"case": lambda figure: figure["case"], "test": lambda figure: figure["test"]}
PEER = {"beside it": against, "ratio": ratio}
RUN = {"run": lambda figure: f"`{figure['run']}`", "date": lambda figure: figure["date"]}
ML = {"`ml`": lambda figure: with_unit(figure, "ml")}
TABLES = {
    "one-request": CASE | ML | PEER | RUN,
    "many-clients": CASE
    | {"in all": ML["`ml`"], "while all decode": lambda figure: with_unit(figure, "decoding")}
    | PEER
    | {"first token, ms": lambda figure: figure.get("first", "")}
    | {"next, ms": lambda figure: figure.get("next", "")}
    | RUN,
    "cpu": CASE
    | ML
    | {"`int8`": lambda figure: with_unit(figure, "int8")}
    | PEER
    | {"`int8` ratio": lambda figure: shown(figure.get("int8_ratio", ""))}
    | RUN,
    "slow": CASE | {"`ml`": ours} | PEER | RUN,
}


def figures():
    """All figures with the names of their runs, by case. Those of one case keep the order of their files."""
    found = []
    for path in sorted(RESULTS.glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        for figure in run["figures"]:
            unknown = set(figure["tables"]) - TABLES.keys()
            if unknown:
                sys.exit(f"{path.name}: no table is called {', '.join(sorted(unknown))}")
            found.append(figure | {"run": path.stem, "date": run["date"]})
    return sorted(found, key=lambda figure: figure["case"].lower())


def table(name, all_figures):
    columns = TABLES[name]
    rows = [[cell(figure) for cell in columns.values()] for figure in all_figures if name in figure["tables"]]
    lines = (f"| {' | '.join(row)} |\n" for row in [list(columns), ["---"] * len(columns), *rows])
    return "".join(lines).replace("|  |", "| |").replace("|  |", "| |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where the page differs")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    missing = TABLES.keys() - {name for _, name, _ in BLOCK.findall(page)}
    if missing:
        sys.exit(f"{PAGE.name} has no place for the table {', '.join(sorted(missing))}")
    all_figures = figures()
    written = BLOCK.sub(lambda block: block[1] + table(block[2], all_figures) + block[3], page)
    if options.check and written != page:
        sys.exit(f"{PAGE.name} differs from the result files; run `python3 benches/tables.py`")
    if not options.check:
        PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
