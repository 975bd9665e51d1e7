"""openai's and anthropic's packages for Python against one server, which has a model that embeds beside one for text:
check.py URL KEYED_URL KEY, with the server's address in ML_EMBEDDING."""

import os

from anthropic import Anthropic
from openai import OpenAI

URL = os.environ["ML_EMBEDDING"]
STORY = [{"role": "user", "content": "Tell me a story about a fox"}]
LENGTH = 12

openai = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
anthropic = Anthropic(base_url=URL, api_key="none", max_retries=0)

served = openai.models.list().data
TEXT = next(model.id for model in served if hasattr(model, "capabilities"))
VECTORS = next(model.id for model in served if model.info.get("scores") is False)


def check_chats():
    asked = {"model": TEXT, "messages": STORY, "max_tokens": LENGTH, "temperature": 0}
    whole = openai.chat.completions.create(**asked)
    said = whole.choices[0].message.content
    assert said and whole.usage.completion_tokens <= LENGTH, whole
    chunks = openai.chat.completions.create(**asked, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == said, (streamed, said)
    return said


def check_messages(said):
    asked = {"model": TEXT, "messages": STORY, "max_tokens": LENGTH, "extra_body": {"temperature": 0}}
    whole = anthropic.messages.create(**asked)
    assert "".join(block.text for block in whole.content) == said, (whole.content, said)
    with anthropic.messages.stream(**asked) as stream:
        streamed = "".join(stream.text_stream)
    assert streamed == said, (streamed, said)


def check_vectors():
    made = openai.embeddings.create(model=VECTORS, input=["a fox", "a river"], encoding_format="float")
    lengths = [sum(value * value for value in one.embedding) for one in made.data]
    assert len(lengths) == 2 and all(abs(length - 1) < 1e-4 for length in lengths), lengths


check_messages(check_chats())
check_vectors()
print(f"both packages chat with {TEXT}, with the same answer, and {VECTORS} makes vectors")
