#!/usr/bin/env python3
"""Tokens a second of a whole server at 32 clients, greedy chats of 40 tokens.

  ml serve --model DIR --port 8141 &  python -m mlx_lm server --model DIR --port 8142 &
  python clients/mlx_lm/throughput.py http://127.0.0.1:8141 demo-model 96
  python clients/mlx_lm/throughput.py http://127.0.0.1:8142 default_model 32
"""
import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

CLIENTS = 32


def ask(number):
    """The tokens of one answer."""
    message = {"role": "user", "content": f"Tell me a story about a fox number {number}"}
    body = {"model": sys.argv[2], "messages": [message], "max_tokens": 40, "temperature": 0}
    request = urllib.request.Request(f"{sys.argv[1]}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


ask(-1)  # to warm up
began = time.perf_counter()
with ThreadPoolExecutor(CLIENTS) as clients:
    tokens = sum(clients.map(ask, range(int(sys.argv[3]))))
print(f"{tokens} tokens, {tokens / (time.perf_counter() - began):.1f} tokens/s")
