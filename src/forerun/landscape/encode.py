"""Rows as arrays: numbers scaled, missing values imputed, names encoded, texts as clusters or coordinates, components,
noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forerun._util.extras import needed
from forerun.landscape.rows import Rows

Embed = Callable[[Sequence[str]], np.ndarray]
#: Names in fewer training rows than this share one column.
LEAST_ROWS = 4
COMPONENTS = 15
_MAP_SIZE = 5
#: Coordinates that the published experiment lays the names of a category out in before they are clustered, and those of
#: a model's text. Fewer where there are fewer names.
_NAMES_SIZE, _TEXT_SIZE = 100, 30


@dataclass(frozen=True)
class Encoding:
    """How rows become arrays: `scaler` standard, minmax; `names` onehot, target, clusters, map, joined; PCA, noise."""

    scaler: str = "standard"
    names: str = "onehot"
    components: int | None = None
    noise: float = 0.0


#: The five published experiments, and two more encodings.
ENCODINGS = {
    "standard scaler": Encoding(), "min-max": Encoding(scaler="minmax"),
    "embeddings with clusters": Encoding(names="joined"), "PCA 15": Encoding(components=COMPONENTS),
    "noise": Encoding(noise=0.1), "target encoding": Encoding(names="target"), "embedding map": Encoding(names="map"),
    "clusters of texts": Encoding(names="clusters"),
}  # fmt: skip


@dataclass(frozen=True)
class Arrays:
    """One split, encoded by its training part alone."""

    train: np.ndarray
    test: np.ndarray
    known_train: np.ndarray
    known_test: np.ndarray
    names: tuple[str, ...]
    centre: tuple[float, ...] = ()  # of the numbers, which come first: what was subtracted, what was divided by
    width: tuple[float, ...] = ()


def encoded(
    rows: Rows, train: np.ndarray, test: np.ndarray, encoding: Encoding, embed: Embed | None = None, seed: int = 0
) -> Arrays:
    """The rows of a split as arrays; noise is added to the training part only."""
    with needed("the landscape study", "landscape"):
        numbers, number_names, centre, width = _numbers(rows, train, encoding.scaler)
        words, word_names = _names(rows, train, encoding.names, embed)
    generator = np.random.default_rng(seed)
    own, other = np.hstack([numbers[train], words[train]]), np.hstack([numbers[test], words[test]])
    names = (*number_names, *word_names)
    if encoding.noise:
        own = _noisy(own, len(number_names), encoding.noise, generator)
    if encoding.components:
        from sklearn.decomposition import PCA

        many = min(encoding.components, *own.shape)
        components = PCA(many, random_state=0).fit(own)
        own, other, names = (
            components.transform(own),
            components.transform(other),
            tuple(f"PC{n + 1}" for n in range(many)),
        )
        centre, width = (), ()
    return Arrays(own, other, rows.known[train], rows.known[test], names, centre, width)


def _numbers(
    rows: Rows, train: np.ndarray, scaler: str
) -> tuple[np.ndarray, tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    """Numbers with missing values imputed by the root mean square of the training part, then scaled by that part; and
    the scale."""
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    values = rows.frame[list(rows.numbers)].to_numpy(dtype=float)
    seen = np.isfinite(values[train]).any(axis=0)
    values, names = values[:, seen], tuple(name for name, known in zip(rows.numbers, seen, strict=True) if known)
    part = values[train]
    # Logarithms may be negative: the root mean square keeps the sign of the mean.
    usual = np.sign(np.nanmean(part, axis=0)) * np.sqrt(np.nanmean(part**2, axis=0))
    values = np.where(np.isfinite(values), values, usual)
    scale = (StandardScaler() if scaler == "standard" else MinMaxScaler()).fit(values[train])
    # The scaled values of 0 and 1 say what was subtracted and divided by.
    zero, one = scale.transform(np.stack([np.zeros(values.shape[1]), np.ones(values.shape[1])]))
    width = 1 / (one - zero)
    return scale.transform(values), names, tuple(map(float, -zero * width)), tuple(map(float, width))


def _names(rows: Rows, train: np.ndarray, how: str, embed: Embed | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Names of organisations, chips and so on as columns; the texts of the rows as clusters or as coordinates."""
    if how == "joined":
        return _joined(rows, embed or _sentence_model())
    if how in ("clusters", "map"):
        return _mapped(rows, how, embed or _sentence_model())
    from sklearn.preprocessing import OneHotEncoder, TargetEncoder

    cells = rows.frame[list(rows.categories)].astype(object).where(lambda f: f.notna(), "unknown").astype(str)
    if how == "target":
        encoder = TargetEncoder(target_type="continuous", random_state=0).fit(cells.iloc[train], rows.known[train])
        return encoder.transform(cells), tuple(rows.categories)
    coder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=LEAST_ROWS, sparse_output=False)
    coder.fit(cells.iloc[train])
    return coder.transform(cells), tuple(coder.get_feature_names_out(list(rows.categories)))


def _mapped(rows: Rows, how: str, embed: Embed) -> tuple[np.ndarray, tuple[str, ...]]:
    """Embedded texts laid out by UMAP; as coordinates, or as the clusters that HDBSCAN finds among them.

    All texts are embedded together, those of test rows too: a text is known before anything is predicted, and no target
    is used.
    """
    texts = tuple(dict.fromkeys(rows.words))
    place = {text: at for at, text in enumerate(texts)}
    of_row = np.array([place[text] for text in rows.words])
    spots = _layout(texts, embed)
    if how == "map":
        return spots[of_row], tuple(f"map {n + 1}" for n in range(spots.shape[1]))
    clusters, kinds = _clusters(spots)
    return clusters[of_row], tuple(f"cluster {kind}" for kind in kinds)


def _joined(rows: Rows, embed: Embed) -> tuple[np.ndarray, tuple[str, ...]]:
    """As published: the names of every category embedded, laid out and clustered, a column for each cluster; joined
    with the coordinates of the models' texts."""
    parts: list[np.ndarray] = []
    names: list[str] = []
    for category in rows.categories:
        cells = rows.frame[category].astype(object).where(rows.frame[category].notna(), "unknown").astype(str)
        known = tuple(dict.fromkeys(cells))
        if len(known) < _FEW:  # too few to lay out: each is a cluster
            clusters, kinds = np.eye(len(known)), known
        else:
            clusters, found = _clusters(_layout(known, embed, _NAMES_SIZE))
            kinds = tuple(f"cluster {kind}" for kind in found)
        place = {name: at for at, name in enumerate(known)}
        parts.append(clusters[[place[cell] for cell in cells]])
        names += [f"{category}_{kind}" for kind in kinds]
    texts = tuple(dict.fromkeys(rows.words))
    place = {text: at for at, text in enumerate(texts)}
    spots = _layout(texts, embed, _TEXT_SIZE)
    parts.append(spots[[place[text] for text in rows.words]])
    return np.hstack(parts), (*names, *(f"map {n + 1}" for n in range(spots.shape[1])))


#: Names of a category that are not laid out.
_FEW = 12


def _clusters(spots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A column for each cluster that HDBSCAN finds, and its number; -1 is what is in none."""
    from sklearn.cluster import HDBSCAN

    labels = HDBSCAN(min_cluster_size=max(2, min(8, len(spots) // 8)), copy=True).fit_predict(spots)
    kinds = np.unique(labels)
    return (labels[:, None] == kinds[None, :]).astype(float), kinds


@lru_cache(maxsize=32)
def _layout(texts: tuple[str, ...], embed: Embed, most: int = _MAP_SIZE) -> np.ndarray:
    from umap import UMAP

    size = max(2, min(most, len(texts) - 3))
    layout = UMAP(n_components=size, n_neighbors=min(15, len(texts) - 1), min_dist=0.0, random_state=0, n_jobs=1)
    return np.asarray(layout.fit_transform(embed(texts)), dtype=float)


def _sentence_model() -> Embed:
    from forerun.landscape.fill.embedding import embed

    return embed


def _noisy(values: np.ndarray, numbers: int, share: float, generator: np.random.Generator) -> np.ndarray:
    """Numbers with noise of a share of their deviation; the same share of rows takes another row's names."""
    out = values.copy()
    out[:, :numbers] += generator.normal(0.0, share, (len(out), numbers)) * values[:, :numbers].std(axis=0)
    swapped = generator.random(len(out)) < share
    out[swapped, numbers:] = values[generator.integers(0, len(out), int(swapped.sum())), numbers:]
    return out
