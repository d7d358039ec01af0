"""Every family of networks: its names, its graphs, and the network that the measuring core builds of the same file."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.measure.cases import case_of, workload_of
from forerun.measure.core.models import Built
from forerun.networks import FILES, family, family_of, is_family
from forerun.networks.base import Family, training_loss
from forerun.workload import Workload

#: A small member of each family; several where a flag changes the design.
TINY = """
    cnn:depth=3,filters=4  unet:base=4,levels=2,height=16,width=16
    diffusion_unet:image=16,width=16,levels=2,blocks=1,head=8,context=24,tokens=5
    diffusion_unet:image=8,width=16,levels=2,blocks=1,head=16,context=0
    dit:image=8,width=32,depth=3,heads=4,classes=10  dit:image=8,width=32,depth=2,heads=4,gated=1
    vae_decoder:latent=8,width=8,levels=2,blocks=1
    gan:image=16,latent=16,width=8  gan:image=16,latent=16,width=8,style=1  gan:image=16,width=8,discriminator=1
    super_resolution:image=8,width=8,blocks=2,scale=3
    super_resolution:image=8,width=16,blocks=2,scale=4,groups=2,attention=1
    detector:image=64,width=4,pyramid=8,classes=3,blocks=1
    detector:image=64,width=4,pyramid=8,classes=3,blocks=1,convs=1,bottleneck=1,anchor_free=1
    segmenter:image=64,width=4,head=8,blocks=1  segmenter:image=64,width=4,head=8,blocks=1,decoder=1
    segmenter:image=64,width=4,head=8,blocks=1,decoder=2,bottleneck=1
    video:frames=4,image=32,width=4,blocks=1,classes=5  video:frames=4,image=32,width=4,blocks=1,factorised=1
    video:frames=4,image=32,width=4,blocks=1,bottleneck=1,slow=1
    volume:size=16,width=4,levels=3  volume:size=8,width=4,levels=2,residual=1,supervised=1
    style_transfer:image=16,width=4,blocks=2,resize=1  style_transfer:image=16,width=4,blocks=1,affine=1
    nerf:samples=8,width=16,depth=4  nerf:samples=8,width=16,depth=1,view=0
    autoencoder:image=16,width=4,levels=2,latent=8
    autoencoder:image=16,width=4,levels=2,latent=8,variational=1,norm=0
    pose:height=32,across=16,width=4,blocks=1,modules=1,branches=3
    optical_flow:height=64,across=64,base=8,features=8,hidden=8,iterations=2,levels=3,radius=2
    mixer_mae:image=32,patch=8,width=32,depth=2,heads=4,decoder_width=16,decoder_depth=1
    mixer_mae:image=32,patch=8,width=32,depth=2,heads=4,decoder_width=16,decoder_depth=1,mixer=1
    speech_cnn:design=0,width=32  speech_cnn:design=1,width=16,depth=12,length=1000
    speech_cnn:design=2,width=32,groups=4,kernel=5,length=200
    conformer:width=32,depth=2,frames=100  conformer:width=32,depth=2,frames=100,relative=0,heads=2,kernel=7
    speech_seq2seq:width=48,encoder=1,decoder=1,frames=99,vocab=100,target=7
    recurrent:cell=0,hidden=32,layers=2  recurrent:cell=1,hidden=16,layers=1,both_ways=1,features=5
    recurrent:cell=2,hidden=16,layers=1,each_step=1
    recommender:tables=4,rows=100,width=8,bag=3  recommender:tables=4,rows=100,width=8,cross=2
    point_cloud:design=0,width=8,points=64  point_cloud:design=1,width=8,points=64
    point_cloud:design=2,width=8,points=64,segment=1
    graph_network:design=0,width=16,depth=2,nodes=20  graph_network:design=1,width=16,depth=2,nodes=20
    graph_network:design=2,width=16,depth=2,nodes=20  graph_network:design=3,width=16,depth=2,nodes=20
    neural_operator:dims=1,width=8,depth=2  neural_operator:dims=2,width=8,depth=2,size=30
    state_space:design=0,width=32,depth=2,length=128,chunk=32,state=8
    state_space:design=1,width=32,depth=2,length=128,chunk=32,state=8
    state_space:design=2,width=32,depth=2,length=128,chunk=32,state=8
    time_series:design=0,width=16,depth=2  time_series:design=1,width=16,depth=2
    time_series:design=2,width=16,depth=2  time_series:design=3,width=16,depth=2
    tabular_transformer:transformer=1,width=16,depth=2  tabular_transformer:transformer=0,width=16,depth=2
    seq2seq:biased=1,width=32,depth=2  seq2seq:biased=0,width=32,depth=2
    biased_attention:design=0,width=32,depth=2  biased_attention:design=1,width=32,depth=2
    biased_attention:design=2,width=32,depth=2
    mixture_of_experts:design=0,width=64,depth=2,inner=64  mixture_of_experts:design=1,width=64,depth=2,inner=64
    mixture_of_experts:design=2,width=64,depth=2,inner=64
    torch_transformer:design=0,width=32,depth=2  torch_transformer:design=1,width=32,depth=2,norm_first=1,gelu=1
    torch_transformer:design=2,width=32,depth=2
    multi_query:width=64,heads=4,depth=2,groups=1,expand=0,parallel=0
    multi_query:width=64,heads=4,depth=2,groups=2,expand=1,parallel=1
    nasbench201:|avg_pool_3x3~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|nor_conv_3x3~2|
""".split()


def case(name: str, **settings: Any) -> dict[str, Any]:
    return case_of(Workload(name, batch=2, **settings))


@pytest.mark.parametrize("name", TINY)
def test_the_graph_is_that_of_the_network_that_is_measured(name: str) -> None:
    made: Family = family_of(name)
    assert made.parse(made.name(**made.parse(name))) == made.parse(name)
    built = Built(case(name, mode="training", optimizer="momentum"), "cpu")
    built.call(case(name, mode="training", optimizer="momentum")).call()
    weights = sum(p.numel() for p in built.model.parameters())
    for mode in made.modes:
        graph = load_graph(Workload(name, batch=2, mode=mode))
        assert graph.parameters == weights and graph.ops
        assert {op.phase for op in graph.ops} >= ({"forward", "backward"} if mode == "training" else {"forward"})


@pytest.mark.parametrize("name", TINY)
def test_a_network_runs_in_every_dtype_and_learns_in_all_its_parts(name: str) -> None:
    for dtype in ("fp32", "bf16", "fp16"):
        built = Built(case(name, dtype=dtype), "cpu")
        built.prepare(case(name, dtype=dtype))
        out = built.call(case(name, dtype=dtype)).call()
        first = out if isinstance(out, torch.Tensor) else out[0]
        assert first.shape[0] == 2 and first.dtype == next(built.model.parameters()).dtype
    trained = Built(case(name, mode="training", optimizer="momentum"), "cpu")
    trained.call(case(name, mode="training", optimizer="momentum", amp="bf16")).call()
    idle = [key for key, p in trained.model.named_parameters() if p.grad is None]
    assert not idle, f"no gradient reaches {idle}"


@pytest.mark.parametrize("prefix", FILES)
def test_a_wrong_name_is_one_sentence(prefix: str) -> None:
    made = family(prefix)
    assert made.prefix == prefix and is_family(f"{prefix}:")
    assert set(made.always_named) <= set(made.settings)
    key, setting = next(iter(made.settings.items()))
    with pytest.raises(ForerunError, match=f"must be a whole number from {setting.low} to {setting.high}"):
        load_graph(Workload(f"{prefix}:{key}={setting.high + 1}"))
    with pytest.raises(ForerunError, match="is not one of"):
        load_graph(Workload(f"{prefix}:no_such_setting=1"))
    with pytest.raises(ForerunError, match="gives its input"):
        load_graph(Workload(made.example(), input_shape=(3, 8, 8)))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("unet:levels=3,height=20", "multiples of 8 for 3 levels"),
        ("diffusion_unet:image=30", "image must be a multiple of 8"),
        ("dit:width=100,heads=6", "width must be a multiple of heads"),
        ("gan:image=48", "image must be a power of two"),
        ("video:slow=1,factorised=1", "a slow pathway has no factorised convolutions"),
        ("volume:size=20,levels=4", "size must be a multiple of 8"),
        ("pose:height=100", "height and across must be multiples of 32"),
        ("optical_flow:height=64", "at least 128 for 4 levels"),
        ("mixer_mae:image=100", "image must be a multiple of patch"),
        ("cnn:depth=3", "must say filters=, as in cnn:depth="),
        ("dti:width=8", "no model is called"),
    ],
)
def test_settings_that_do_not_go_together(name: str, problem: str) -> None:
    with pytest.raises(ForerunError, match=problem):
        load_graph(Workload(name))


def test_every_family_has_a_small_member_here() -> None:
    assert {name.partition(":")[0] for name in TINY} == set(FILES)


def test_a_case_and_its_workload_name_the_same_network() -> None:
    request = Workload("dit:heads=4,width=32,depth=2", batch=3, mode="training", optimizer="adamw", amp="bf16")
    there = case_of(request)
    assert (there["source"], there["name"]) == ("dit", "dit:width=32,depth=2,heads=4")
    assert case_of(workload_of(there)) == there


def test_the_loss_is_cross_entropy_of_class_scores_or_the_mean_of_all_outputs() -> None:
    scores = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    assert training_loss(scores).item() == pytest.approx(0.6931, abs=1e-4)
    maps = (torch.full((2, 1, 2, 2), 2.0), torch.full((2, 3), 0.5), torch.zeros(2, dtype=torch.int64))
    assert training_loss(maps).item() == 2.5
