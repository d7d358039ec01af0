"""Parts of an evaluation, each a fit of minutes: done in parallel, and cached, so that a stopped run can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from forerun._util.parallel import side_by_side

#: Called with how many parts are done, and how many there are.
Progress = Callable[[int, int], None]


def cached_parts(
    work: Callable[[str], pd.DataFrame], names: Sequence[str], place: Path | None, progress: Progress | None,
    *, in_moments: bool = False,
) -> Iterator[pd.DataFrame]:  # fmt: skip
    """`work` of every name, in order; results of an earlier run in the folder `place` are read instead. Work that is
    done `in_moments` is not distributed over processes."""

    def one(name: str) -> pd.DataFrame:
        file = place and place / f"{name}.parquet"
        if file is not None and file.exists():
            return pd.read_parquet(file)
        frame = work(name)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            fresh = file.with_suffix(".part")
            frame.to_parquet(fresh, index=False)
            fresh.replace(file)
        return frame

    for number, frame in enumerate(map(one, names) if in_moments else side_by_side(one, names)):
        yield frame
        if progress:
            progress(number + 1, len(names))
