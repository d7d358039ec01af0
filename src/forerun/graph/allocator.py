"""PyTorch's CUDA caching allocator, replayed: pools, segments, best fit, split, merge; under a limit free segments go.

A prediction replays thousands of requests, so blocks are rows of plain lists and a free block is one number: its size,
then its handle.
"""

from __future__ import annotations

from bisect import bisect_left, insort

MB = 2**20
ALIGN = 512  # every request is rounded up to this
_SMALL = MB  # requests up to here come from 2 MB segments
_SMALL_SEGMENT, _MEDIUM_SEGMENT, _MEDIUM_LIMIT = 2 * MB, 20 * MB, 10 * MB
#: Bits of a handle in the number of a free block.
_HANDLE = 32
_HANDLES = 2**_HANDLE - 1


class CachingAllocator:
    """The allocator of one device, with an optional limit of bytes."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.reserved = self.peak_reserved = 0
        self.fits = True
        # The free blocks of each pool, sorted by size and then by handle.
        self._free_small: list[int] = []
        self._free_large: list[int] = []
        # Of every block by its handle, which counts from 1: bytes, neighbours in its segment (0: none), free or not.
        self._size, self._before, self._after, self._is_small, self._is_free = [0], [0], [0], [False], [False]

    @property
    def free_bytes(self) -> int:
        """Bytes of all free blocks."""
        return sum(one >> _HANDLE for free in (self._free_small, self._free_large) for one in free)

    def apply(self, held: list[int], size: int, blocks: int) -> None:
        """Allocates this number of blocks of `size` bytes; a negative number frees the newest of those held."""
        for _ in range(blocks):
            held.append(self.allocate(size))
        while blocks < 0 and held:
            self.free(held.pop())
            blocks += 1

    def allocate(self, size: int) -> int:
        """A block of `size` bytes (already rounded); returns its handle."""
        if size < ALIGN:
            size = ALIGN
        small = size <= _SMALL
        free = self._free_small if small else self._free_large
        at = bisect_left(free, size << _HANDLE)
        if at < len(free):
            found = free.pop(at)
            have, block = found >> _HANDLE, found & _HANDLES
            self._is_free[block] = False
        else:
            have = _SMALL_SEGMENT if small else _MEDIUM_SEGMENT if size < _MEDIUM_LIMIT else _round_up(size, 2 * MB)
            self._reserve(have)
            block = self._new(have, 0, 0, small, False)
        rest = have - size
        if rest >= ALIGN if small else rest > _SMALL:
            after = self._after[block]
            tail = self._new(rest, block, after, small, True)
            self._before[after] = tail  # that of 0 is never read
            self._after[block] = tail
            self._size[block] = size
            insort(free, rest << _HANDLE | tail)
        return block

    def free(self, block: int) -> None:
        """Gives a block back, merged with a free neighbour on either side."""
        sizes, is_free = self._size, self._is_free
        free = self._free_small if self._is_small[block] else self._free_large
        before, after, size = self._before[block], self._after[block], sizes[block]
        if is_free[before]:
            del free[bisect_left(free, sizes[before] << _HANDLE | before)]
            size += sizes[before]
            before = self._before[block] = self._before[before]
            self._after[before] = block
        if is_free[after]:
            del free[bisect_left(free, sizes[after] << _HANDLE | after)]
            size += sizes[after]
            after = self._after[block] = self._after[after]
            self._before[after] = block
        sizes[block], is_free[block] = size, True
        insort(free, size << _HANDLE | block)

    def _reserve(self, size: int) -> None:
        """A new segment, which may need the memory of free ones."""
        if self.limit is not None and self.reserved + size > self.limit:
            self._release_free_segments()
            self.fits = self.fits and self.reserved + size <= self.limit
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _release_free_segments(self) -> None:
        for free in (self._free_small, self._free_large):
            whole = [one for one in free if not self._before[one & _HANDLES] and not self._after[one & _HANDLES]]
            for one in whole:
                free.remove(one)
                self.reserved -= one >> _HANDLE

    def _new(self, size: int, before: int, after: int, small: bool, is_free: bool) -> int:
        self._size.append(size)
        self._before.append(before)
        self._after.append(after)
        self._is_small.append(small)
        self._is_free.append(is_free)
        return len(self._size) - 1


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
