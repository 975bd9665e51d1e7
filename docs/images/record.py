#!/usr/bin/env python3
"""Records `ml chat` with the built-in model as an animated picture.

    python3 docs/images/record.py target/release/ml docs/images/chat.svg

A shell runs in a pseudo-terminal. What the program writes is kept with its time, and nothing is added to it. The
picture plays it again by CSS alone. Where a viewer does not animate, it shows the end.
"""

import fcntl
import html
import os
import pathlib
import pty
import re
import select
import struct
import sys
import termios
import time

ROWS, COLUMNS = 40, 124
# What is typed, and the text that the terminal shows when the next line may come.
TYPED = [
    ("ml chat", ">>> "),
    ("Hello!", ">>> "),
    ("What is a KV cache?", ">>> "),
    ("Tell me a story about a fox.", ">>> "),
    ("/bye", "$ "),
]
# Seconds: between two keys, before a line is typed, of the last picture, and until a line is given up.
KEY, REST, HOLD, PATIENCE = 0.05, 1.0, 6.0, 120.0
# Sizes of a character and of the margin.
WIDTH, HEIGHT, SIZE, MARGIN = 8.4, 19, 14, 16

STYLE = """
svg{--back:#ffffff;--edge:#d0d7de;--text:#1f2328;--dim:#59636e;color-scheme:light dark}
@media(prefers-color-scheme:dark){svg{--back:#0d1117;--edge:#3d444d;--text:#e6edf3;--dim:#9198a1}}
rect{fill:var(--back);stroke:var(--edge)}
text{fill:var(--text);font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
.d{fill:var(--dim)}.b{font-weight:700}
g{animation:%.1fs step-end infinite}
@media(prefers-reduced-motion:reduce){g{animation:none!important}}
"""

# Classes of `STYLE` for the ways in which a terminal shows text.
STYLES = {"": "", "0": "", "1": "b", "2": "d"}


class Screen:
    """A terminal's cells, each with what it showed since when. It knows the codes that `ml chat` writes."""

    def __init__(self):
        self.row, self.column, self.style = 0, 0, ""
        self.cells = {}
        self.rest = ""

    def put(self, at, time, character):
        shown = self.cells.setdefault(at, [(0.0, " ", "")])
        if shown[-1][1:] != (character, self.style):
            shown.append((time, character, self.style))

    def feed(self, time, text):
        text = self.rest + text
        self.rest = ""
        for part in re.finditer(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[^\[]|(\x1b.*$)|(.)", text, re.DOTALL):
            numbers, code, cut, character = part.group(1), part.group(2), part.group(3), part.group(4)
            if cut:
                self.rest = cut
            elif code == "m" and numbers in STYLES:
                self.style = STYLES[numbers]
            elif code == "K" and numbers in ("", "0"):
                for column in range(self.column, COLUMNS):
                    if (self.row, column) in self.cells:
                        self.put((self.row, column), time, " ")
            elif code == "C":
                self.column += int(numbers or 1)
            elif code == "D":
                self.column -= int(numbers or 1)
            elif code in ("h", "l") and numbers.startswith("?"):
                pass  # Modes: pasting, drawing at once.
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self.row += 1
            elif character and character.isprintable():
                if self.column == COLUMNS:
                    self.row, self.column = self.row + 1, 0
                self.put((self.row, self.column), time, character)
                self.column += 1
            else:
                sys.exit(f"the terminal's code {part.group(0)!r} is not known here")
            if self.row == ROWS:
                sys.exit(f"the recording has more than {ROWS} rows")

    def line(self):
        """What the cursor's row shows before the cursor."""
        shown = [self.cells.get((self.row, column), [(0.0, " ", "")])[-1][1] for column in range(self.column)]
        return "".join(shown)

    def runs(self):
        """Neighbours that come and go together: from when, until when, row, column, text and style."""
        found = []
        for (row, column), shown in sorted(self.cells.items()):
            ends = [begin for begin, _, _ in shown[1:]] + [None]
            for (begin, character, style), end in zip(shown, ends):
                if character == " ":
                    continue
                last = found[-1] if found else None
                if last and last[:3] == [begin, end, row] and last[5] == style and last[3] + len(last[4]) == column:
                    last[4] += character
                else:
                    found.append([begin, end, row, column, character, style])
        return found


def record(program):
    """The screen after all of `TYPED`, and the seconds that it took."""
    child, terminal = pty.fork()
    if child == 0:
        path = f"{pathlib.Path(program).resolve().parent}:/usr/bin:/bin"
        environment = {"PATH": path, "HOME": os.environ["HOME"], "TERM": "xterm-256color", "PS1": "$ ", "LANG": "C.UTF-8"}
        os.execve("/bin/sh", ["sh", "-i"], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen, started = Screen(), time.monotonic()

    def read(until, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            if select.select([terminal], [], [], 0.01)[0]:
                text = os.read(terminal, 65536).decode()
                screen.feed(time.monotonic() - started, text)

    read(lambda: screen.line() == "$ ", PATIENCE)
    started = time.monotonic()
    for line, ready in TYPED:
        read(lambda: False, REST)
        for key in line:
            os.write(terminal, key.encode())
            read(lambda: False, KEY)
        row = screen.row
        os.write(terminal, b"\r")
        read(lambda: screen.row > row and screen.line() == ready, PATIENCE)
        if screen.line() != ready:
            sys.exit(f"no {ready!r} after {line!r}: the last line is {screen.line()!r}")
    seconds = time.monotonic() - started
    os.close(terminal)
    os.waitpid(child, 0)
    return screen, seconds


def picture(screen, seconds):
    """The recording as SVG: a group for each moment, which CSS shows from then on."""
    total = seconds + HOLD
    moments = {}
    for begin, end, row, column, text, style in screen.runs():
        moments.setdefault((begin, end), []).append((row, column, text, style))
    frames, groups = [], []
    for number, ((begin, end), runs) in enumerate(sorted(moments.items(), key=lambda moment: moment[0][0])):
        steps = f"{100 * begin / total:.2f}%{{opacity:1}}"
        if end is not None:
            steps += f"{100 * end / total:.2f}%,to{{opacity:0}}"
        if begin > 0:
            frames.append(f"@keyframes k{number}{{0%{{opacity:0}}{steps}}}")
        texts = []
        for row, column, text, style in runs:
            x, y = MARGIN + column * WIDTH, MARGIN + row * HEIGHT + SIZE
            mark = f' class="{style}"' if style else ""
            length = f' textLength="{len(text) * WIDTH:.1f}"' if len(text) > 1 else ""
            texts.append(f'<text x="{x:.1f}" y="{y}"{length}{mark}>{html.escape(text, quote=False)}</text>')
        # A viewer without animation shows what is there at the end.
        hidden = ";opacity:0" if end is not None else ""
        groups.append(f'<g style="animation-name:k{number}{hidden}">{"".join(texts)}</g>')
    rows = 1 + max(row for row, _ in screen.cells)
    width, height = COLUMNS * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" role="img">',
        "<title>ml chat with the built-in model</title>",
        f"<style>{STYLE % (SIZE, total)}{chr(10).join(frames)}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>',
        *groups,
        "</svg>",
        "",
    ])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pathlib.Path(sys.argv[2]).write_text(picture(*record(sys.argv[1])), encoding="utf-8")


main()
