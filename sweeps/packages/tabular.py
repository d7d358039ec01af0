"""Networks on tables and molecules as pytorch-tabnet, pytorch-tabular and schnetpack publish them, random weights."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

import torch
from torch import Tensor, nn


def absent(*packages: str) -> None:
    """Stands in for packages that the machine may lack: they are imported for files and data, never by a network."""

    class StandIn(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__init__": lambda self, *args, **kwargs: None})

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            if name.partition(".")[0] in missing:
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
            return None

        def create_module(self, spec: Any) -> types.ModuleType:
            return StandIn(spec.name)

        def exec_module(self, module: types.ModuleType) -> None:
            pass

    missing = {package for package in packages if importlib.util.find_spec(package) is None}
    sys.meta_path.append(Finder())


absent("rich", "joblib", "requests")

CONTINUOUS, CATEGORIES, VALUES, CLASSES = 14, 12, 32, 7


class Table(nn.Module):
    """A network of pytorch-tabular, which takes a dictionary of the columns of numbers and of categories."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, numbers: Tensor, category_ids: Tensor) -> Tensor:
        return self.network({"continuous": numbers, "categorical": category_ids})["logits"]


class Categories(nn.Module):
    """TabNet with categories, which it reads from the columns of one table of numbers."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, numbers: Tensor, category_ids: Tensor) -> Any:
        return self.network(torch.cat([category_ids.to(numbers.dtype), numbers], dim=1))


class Molecules(nn.Module):
    """A representation of schnetpack for molecules of one size, every pair of atoms a neighbour, and their energies."""

    def __init__(self, network: nn.Module, energy: nn.Module, atoms: int) -> None:
        super().__init__()
        self.network = network
        self.energy = energy  # as schnetpack's Atomwise, whose sum over a molecule needs numbers known on the host
        pairs = [(i, j) for i in range(atoms) for j in range(atoms) if i != j]
        self.register_buffer("pairs", torch.tensor(pairs).T.contiguous())

    def forward(self, positions: Tensor, element_ids: Tensor) -> Tensor:
        batch, atoms = element_ids.shape
        first = torch.arange(batch, device=positions.device)[:, None] * atoms
        centre, other = ((side + first).reshape(-1) for side in self.pairs)
        places = positions.reshape(-1, 3)
        given = {"_atomic_numbers": element_ids.reshape(-1), "_Rij": places[other] - places[centre]}
        out = self.network({**given, "_idx_i": centre, "_idx_j": other})
        energies = self.energy(out["scalar_representation"])
        return energies.reshape(batch, atoms).sum(dim=1)


def moved_with_the_network(network: nn.Module) -> nn.Module:
    """TabNet with its groups of columns as buffers; its estimators instead build the network for one device."""
    for module in network.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, Tensor) and "group" in name:
                delattr(module, name)
                module.register_buffer(name, value)
    return network


def tabnet(width: int, steps: int, **settings: Any) -> nn.Module:
    from pytorch_tabnet.tab_network import TabNet

    groups = torch.eye(54)
    network = TabNet(54, CLASSES, width, width, steps, 1.5, group_attention_matrix=groups, **settings)
    return moved_with_the_network(network)


def tabnet_small() -> nn.Module:
    return tabnet(8, 3)


def tabnet_large() -> nn.Module:
    return tabnet(64, 5)


def tabnet_entmax() -> nn.Module:
    return tabnet(32, 4, mask_type="entmax")


def tabnet_categories() -> nn.Module:
    from pytorch_tabnet.tab_network import TabNet

    columns, width = CONTINUOUS + CATEGORIES, 32
    sizes = {"cat_dims": [VALUES] * CATEGORIES, "cat_emb_dim": [4] * CATEGORIES}
    categories = {"cat_idxs": list(range(CATEGORIES)), **sizes}
    network = TabNet(columns, CLASSES, width, width, 4, group_attention_matrix=torch.eye(columns), **categories)
    return Categories(moved_with_the_network(network))


def tabnet_pretraining() -> nn.Module:
    from pytorch_tabnet.tab_network import TabNetPretraining

    groups = torch.eye(54)
    return moved_with_the_network(TabNetPretraining(54, n_d=64, n_a=64, n_steps=5, group_attention_matrix=groups))


def from_tabular(name: str, config: str = "", **settings: Any) -> nn.Module:
    from omegaconf import OmegaConf
    from pytorch_tabular import models
    from pytorch_tabular.config import InferredConfig

    embeddings = [(VALUES, 16)] * CATEGORIES
    inferred = InferredConfig(CATEGORIES, CONTINUOUS, CLASSES, [VALUES] * CATEGORIES, embeddings)
    made = getattr(models, config or f"{name.removesuffix('Model')}Config")(task="classification", **settings)
    made.loss, made.metrics, made.metrics_params, made.metrics_prob_input = "CrossEntropyLoss", ["accuracy"], [{}], [0]
    config = OmegaConf.create({**OmegaConf.to_container(OmegaConf.structured(made)), "batch_size": 256})
    network = getattr(models, name)(config=config, inferred_config=OmegaConf.structured(inferred))
    return Table(network)


def category_embedding() -> nn.Module:
    return from_tabular("CategoryEmbeddingModel", "CategoryEmbeddingModelConfig", layers="1024-512-256")


def ft_transformer() -> nn.Module:
    return from_tabular("FTTransformerModel", num_attn_blocks=6)


def tab_transformer() -> nn.Module:
    return from_tabular("TabTransformerModel")


def auto_int() -> nn.Module:
    return from_tabular("AutoIntModel")


def danet() -> nn.Module:
    return from_tabular("DANetModel")


def gandalf() -> nn.Module:
    return from_tabular("GANDALFModel")


def gate() -> nn.Module:
    return from_tabular("GatedAdditiveTreeEnsembleModel")


def node() -> nn.Module:
    return from_tabular("NODEModel", "NodeConfig", num_trees=512)


def molecules(name: str, interactions: int, bases: int, **settings: Any) -> nn.Module:
    if "schnetpack" not in sys.modules:  # its own __init__ imports data sets and molecular dynamics, too
        found = importlib.util.find_spec("schnetpack")
        package = types.ModuleType("schnetpack")
        package.__path__ = list(found.submodule_search_locations or []) if found else []
        sys.modules["schnetpack"] = package
    parts = importlib.import_module("schnetpack.nn")
    representation = importlib.import_module("schnetpack.representation")
    basis, cutoff = parts.GaussianRBF(bases, 5.0), parts.CosineCutoff(5.0)
    network = getattr(representation, name)(
        n_atom_basis=128, n_interactions=interactions, radial_basis=basis, cutoff_fn=cutoff, **settings
    )
    return Molecules(network, parts.build_mlp(128, 1), 18)


def schnet() -> nn.Module:
    return molecules("SchNet", 6, 50)


def painn() -> nn.Module:
    return molecules("PaiNN", 3, 20)


def so3net() -> nn.Module:
    return molecules("SO3net", 3, 20, lmax=2)
