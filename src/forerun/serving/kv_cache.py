"""The KV cache of a replica in blocks: what is free, and prefixes that several requests share."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


def blocks_of(tokens: int, block: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // block)


@dataclass
class _Prefix:
    blocks: int
    users: int


class KVCache:
    """Blocks in use and free. A cached prefix stays until its room is needed, the one least recently used goes first.

    Only whole blocks of a prefix are shared."""

    def __init__(self, blocks: int, block: int, share_prefixes: bool = True) -> None:
        self.blocks, self.block, self.share_prefixes = blocks, block, share_prefixes
        self.free = blocks
        self._prefixes: OrderedDict[int, _Prefix] = OrderedDict()
        self._unused = 0  # blocks of prefixes that no request uses at the moment

    @property
    def used(self) -> int:
        """Blocks that requests hold; prefixes kept for later ones are not among them."""
        return self.blocks - self.room

    @property
    def room(self) -> int:
        """Blocks that can be had: free ones, and those of unused prefixes."""
        return self.free + self._unused

    def hit(self, prefix: int, tokens: int, prompt: int) -> int:
        """Blocks of a prompt that are cached; its last token is always computed."""
        entry = self._prefixes.get(prefix) if prefix >= 0 else None
        return 0 if entry is None else min(entry.blocks, tokens // self.block, (prompt - 1) // self.block)

    def room_beside(self, prefix: int, hit: int) -> int:
        """Blocks that can be had by a request that uses this prefix, which then is not evicted."""
        entry = self._prefixes.get(prefix) if hit else None
        return self.room - (entry.blocks if entry is not None and entry.users == 0 else 0)

    def use(self, prefix: int) -> None:
        """A request uses a cached prefix."""
        entry = self._prefixes[prefix]
        if entry.users == 0:
            self._unused -= entry.blocks
        entry.users += 1
        self._prefixes.move_to_end(prefix)

    def leave(self, prefix: int) -> None:
        """A request has ended that used the prefix, which stays cached."""
        entry = self._prefixes[prefix]
        entry.users -= 1
        if entry.users == 0:
            self._unused += entry.blocks

    def keep(self, prefix: int, tokens: int) -> int:
        """Makes the prefix of a computed prompt shared: its blocks, which are no longer the request's own; 0 where it
        is cached already."""
        blocks = tokens // self.block
        if prefix < 0 or not self.share_prefixes or prefix in self._prefixes or blocks == 0:
            return 0
        self._prefixes[prefix] = _Prefix(blocks, users=1)
        return blocks

    def take(self, blocks: int) -> None:
        """Takes blocks, evicting unused prefixes as needed."""
        while blocks > self.free and self._unused:
            prefix = next(p for p, entry in self._prefixes.items() if entry.users == 0)  # most are, the oldest first
            evicted = self._prefixes.pop(prefix).blocks
            self.free += evicted
            self._unused -= evicted
        self.free -= blocks

    def give(self, blocks: int) -> None:
        self.free += blocks
