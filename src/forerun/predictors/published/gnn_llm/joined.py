"""Graph network and language model as one: projected graph vectors stand as soft tokens between the words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from forerun.predictors.published.gnn_llm.language import Language
from forerun.predictors.published.gnn_llm.mae import GraphEncoder
from forerun.predictors.published.gnn_llm.prompts import GRAPH

#: Stands for a soft token among the ids of a prompt.
_SLOT = -1
_OPEN, _CLOSE = GRAPH[: GRAPH.index("><") + 1], GRAPH[GRAPH.index("><") + 1 :]


class GraphLanguageModel(nn.Module):
    """An encoder of graphs, a projection of its vectors to `soft_tokens` embeddings, and a language model."""

    def __init__(self, encoder: GraphEncoder, language: Language, soft_tokens: int = 1) -> None:
        super().__init__()
        self.encoder, self.language = encoder, language.model
        self.tokenizer, self.soft_tokens = language.tokenizer, soft_tokens
        self.projection = nn.Sequential(
            nn.LayerNorm(encoder.width, elementwise_affine=False),
            nn.Linear(encoder.width, soft_tokens * language.width),
        )
        # Soft tokens begin as large as those of words.
        spread = float(language.model.get_input_embeddings().weight.detach().float().std())
        linear: Any = self.projection[1]
        nn.init.normal_(linear.weight, std=spread / encoder.width**0.5)
        nn.init.zeros_(linear.bias)
        self._known: dict[str, list[int]] = {}

    @property
    def device(self) -> torch.device:
        return next(self.projection.parameters()).device

    def loss(self, prompts: Sequence[str], answers: Sequence[str], vectors: Tensor) -> Tensor:
        """The next-token loss of the answers, in the mean over their tokens; `vectors` are of the graphs of all prompts
        in order."""
        end = [self.tokenizer.eos_token_id]
        given = [self._ids(answer) + end for answer in answers]
        ids, seen = self._padded([self._ids(p) + a for p, a in zip(prompts, given, strict=True)])
        keep = max(map(len, given)) + 1
        found = self.language(
            inputs_embeds=self._embedded(ids, vectors), attention_mask=seen, position_ids=_positions(seen),
            logits_to_keep=keep, use_cache=False,
        ).logits[:, -keep:-1]  # fmt: skip
        wanted = ids[:, 1 - keep :].clone()
        counts = torch.tensor([len(a) for a in given], device=ids.device)
        place = torch.arange(keep - 1, device=ids.device)
        wanted[place[None, :] < keep - 1 - counts[:, None]] = -100
        return functional.cross_entropy(found.float().reshape(-1, found.shape[-1]), wanted.reshape(-1))

    @torch.no_grad()
    def answers(self, prompts: Sequence[str], vectors: Tensor, most_tokens: int) -> list[str]:
        """What follows the prompts, the likeliest token each time."""
        ids, seen = self._padded([self._ids(prompt) for prompt in prompts])
        found = self.language.generate(
            inputs_embeds=self._embedded(ids, vectors), attention_mask=seen, max_new_tokens=most_tokens, do_sample=False
        )
        return self.tokenizer.batch_decode(found, skip_special_tokens=True)

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text, slots where the soft tokens of a graph stand."""
        if text not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            first, *rest = text.split(GRAPH)
            ids = self._plain(first)
            for part in rest:
                ids = [*ids, *self._plain(_OPEN), *[_SLOT] * self.soft_tokens, *self._plain(_CLOSE + part)]
            self._known[text] = ids
        return self._known[text]

    def _plain(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Rows of equal length, filled on the left, and which of them are filled."""
        longest, pad = max(map(len, rows)), self.tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows])
        seen = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        return ids.to(self.device), seen.to(self.device)

    def _embedded(self, ids: Tensor, vectors: Tensor) -> Tensor:
        """The embeddings of words, soft tokens in their slots."""
        slots = ids == _SLOT
        words = self.language.get_input_embeddings()(ids.masked_fill(slots, 0))
        if not len(vectors):
            return words
        soft = self.projection(vectors.to(self.device)).reshape(-1, words.shape[-1]).to(words.dtype)
        return words.masked_scatter(slots[..., None], soft)


def _positions(seen: Tensor) -> Tensor:
    """The place of every token among those of its row."""
    return (seen.cumsum(dim=1) - 1).clamp(min=0)
