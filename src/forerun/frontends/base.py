"""The contract of a frontend: what turns one kind of model into graphs.

A frontend is a subclass of `Frontend`. A package names its class under the entry point group `forerun.frontends`, as
forerun does with its own:

    [project.entry-points."forerun.frontends"]
    acme = "acme_forerun:AcmeFrontend"

and a notebook passes it to `forerun.register`. forerun makes one instance of it, without arguments, and keeps it.
`forerun.frontends.check.check_frontend` says whether a frontend keeps this contract.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from forerun._util import limits
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.workload import Workload


class Frontend(ABC):
    """One kind of model: which models it takes, and the graphs they become."""

    #: What the frontend takes, in words: "a torch.nn.Module". Messages that list what forerun takes are made of these.
    takes: ClassVar[str] = ""
    #: Frontends are asked from the highest priority to the lowest, those of equal priority by name. Those for files and
    #: live objects have 100. Those for Hugging Face ids (20) and bare names (10), which almost any word could be, come
    #: last.
    priority: ClassVar[int] = 50
    #: Suffixes of the files that it takes, in lower case: (".onnx",). A path with such a suffix is offered only to
    #: frontends that claim it, so a frontend that takes names need not know the suffixes of files.
    suffixes: ClassVar[tuple[str, ...]] = ()
    #: The most bytes that a file of this kind has; a larger one is refused before it is read.
    max_bytes: ClassVar[int] = 16 * 2**30

    #: Whether it supports a workload's `image_size` and `images`; elsewhere they are refused.
    reads_images: ClassVar[bool] = False

    #: Whether it supports a workload's `amp` and `channels_last`, as those that run PyTorch modules do; elsewhere they
    #: are refused.
    runs_modules: ClassVar[bool] = True

    #: Whether PyTorch runs its training steps, with `amp` and `channels_last`, though it does not run the model else.
    trains_modules: ClassVar[bool] = False

    #: Whether the model is code of the user's own that runs in this process, without limits: nothing that takes models
    #: from other people may offer such a frontend.
    runs_code: ClassVar[bool] = False

    @abstractmethod
    def matches(self, model: Any) -> bool:
        """Whether this frontend takes the model: a live object, a name or a path (which need not exist).

        Cheap: it imports no framework and reads no more than a file's first bytes.
        """

    @abstractmethod
    def load(self, model: Any, workload: Workload) -> list[Graph]:
        """Graphs that between them serve the workload's batch and, where one can, every other.

        What the user can put right is a ForerunError of one sentence. Ops keep to `graph.kinds.KINDS`.
        """

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        """All that decides the graphs beside the workload's settings, as JSON; None when they must not be cached.

        Part of it are the content of files and the versions of libraries that decide what runs.
        """
        return None

    def published(self, model: Any) -> str | None:
        """What the checkpoint of a model is published in, which is what it is answered in where no dtype is asked for:
        a dtype, and after a space the format of quantised weights ("bf16", "bf16 mxfp4"). None: nobody says, so fp32.

        It raises nothing: what is wrong with a model is said by `load`.
        """
        return None

    def names(self) -> list[str]:
        """Every name this frontend takes, where they can be listed: for suggestions after a miss."""
        return []

    def knows(self, name: str) -> bool:
        """Whether it is one of the names that this frontend lists. It may import frameworks to find out."""
        return name in self.names()

    def title(self, model: Any) -> str | None:
        """What the model is called in answers; None: what `load` called it."""
        return None

    def untrusted(self, model: Any) -> bool:
        """Whether the model is a file or a config that anybody may have written: `load` then runs under limits of
        memory and time, in a process of its own."""
        return False

    def warm_up(self) -> None:  # noqa: B027 - nothing to do where nothing is imported late
        """Imports what `load` needs. It is called before a process reads its second untrusted model: the children that
        read them are forked, and find it imported."""

    def claims(self, model: Any) -> bool:
        """Whether the model is a path with one of this frontend's suffixes."""
        return isinstance(model, (str, Path)) and Path(model).suffix.lower() in self.suffixes


def file_hash(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def inference_only(workload: Workload, what: str) -> None:
    """Refuses any other mode: a file made for inference has no backward pass and no cache."""
    if workload.mode != "inference":
        raise ForerunError(
            f"{what} can be predicted for inference only; for {workload.mode} pass the PyTorch model or a "
            "Hugging Face id instead."
        )


def reading_limits(size_mb: float, workload: Workload) -> limits.Limits:
    """What reading a file of a user's may take: a training step is run twice at each of several batch sizes."""
    return limits.for_a_file_of(size_mb, 4.0 if workload.mode == "training" else 1.0)


def inference_or_training(workload: Workload, what: str) -> None:
    """Refuses the modes of generation: a file of one call has no cache."""
    if workload.mode not in ("inference", "training"):
        raise ForerunError(
            f"{what} can be predicted for inference and training; for {workload.mode} pass the PyTorch model or a "
            "Hugging Face id instead."
        )


def one_line(error: BaseException) -> str:
    """The whole of an error's message in one line: what is wrong with a config often stands in its second line."""
    return " ".join(str(error).split())[:1000].rstrip(".") or type(error).__name__


def weights_only(model: Any) -> str:
    """Why a file of weights is refused."""
    return (
        f"{model} is a file of weights or a pickle, which forerun does not execute; pass the torch.nn.Module "
        "from Python, an ONNX export, or the model's name"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:200]
