"""Cases that llama.cpp's server is tested with, in words of our own: check.py URL KEYED_URL KEY.

Expected texts are replaced by what holds for any model. The cases that differ on purpose are those of docs/server.md,
and held to what they are here. Vectors and documents are asked of the server at ML_EMBEDDING.
"""

import pathlib
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import chats
import completions
import embeddings
import facts
import protocols
import tokens

CASES = [case for module in (facts, completions, chats, tokens, embeddings, protocols) for case in module.CASES]

failed = 0
for name, case in CASES:
    started = time.monotonic()
    try:
        case()
    except Exception as error:
        failed += 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{pathlib.Path(last.filename).name}:{last.lineno} {last.line}"
        print(f"{name}: {type(error).__name__}: {error!s:.600} ({place})")
    if time.monotonic() - started > 10:
        print(f"{name}: took {time.monotonic() - started:.1f} s")
print(f"{len(CASES) - failed} of {len(CASES)} cases hold")
sys.exit(1 if failed else 0)
