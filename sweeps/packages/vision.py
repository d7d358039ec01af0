"""Networks of images and texts as packages publish them, with random weights (sweeps/h200_packages.yaml)."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn


class ImageAndText(nn.Module):
    """A network of two towers, called with both inputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor, token_ids: torch.Tensor) -> Any:
        return self.model(image, token_ids)


class ListOfImages(nn.Module):
    """A network that takes a list of images, as torchvision's detectors do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> Any:
        return self.model(list(images))


class Sentences(nn.Module):
    """A network of sentence-transformers, called with the features that its tokenizer would make."""

    def __init__(self, modules: list[nn.Module]) -> None:
        super().__init__()
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(modules=modules)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        features = {"input_ids": token_ids, "attention_mask": torch.ones_like(token_ids)}
        return self.model(features)["sentence_embedding"]


class Tokens(nn.Module):
    """The first module of a sentence-transformers model: an encoder of transformers, built from a config."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        import transformers

        made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
        self.auto_model = transformers.AutoModel.from_config(made)

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
        return {**features, "token_embeddings": self.auto_model(**inputs)[0]}


def _clip(name: str) -> nn.Module:
    import open_clip

    return ImageAndText(open_clip.create_model(name, pretrained=None))


def _image_tower(name: str) -> nn.Module:
    import open_clip

    return open_clip.create_model(name, pretrained=None).visual


def clip_vit_b_32() -> nn.Module:
    return _clip("ViT-B-32")


def clip_vit_b_16() -> nn.Module:
    return _clip("ViT-B-16")


def clip_vit_s_16() -> nn.Module:
    return _clip("ViT-S-16")


def clip_rn50() -> nn.Module:
    return _clip("RN50")


def clip_rn101() -> nn.Module:
    return _image_tower("RN101")


def clip_convnext_base() -> nn.Module:
    return _clip("convnext_base")


def clip_coca() -> nn.Module:
    return _clip("coca_ViT-B-32")


def clip_eva02() -> nn.Module:
    return _clip("EVA02-B-16")


def clip_mobileclip() -> nn.Module:
    return _clip("MobileCLIP-S1")


def clip_vitamin() -> nn.Module:
    return _image_tower("ViTamin-S")


def clip_vit_l_14() -> nn.Module:
    return _image_tower("ViT-L-14")


def _restoration(module: str, network: str, **settings: Any) -> nn.Module:
    made: nn.Module = getattr(importlib.import_module(f"spandrel.architectures.{module}"), network)(**settings)
    return made


def spandrel_esrgan() -> nn.Module:
    return _restoration("ESRGAN.__arch.RRDB", "RRDBNet", scale=4, num_blocks=23)


def spandrel_swinir() -> nn.Module:
    return _restoration("SwinIR.__arch.SwinIR", "SwinIR", window_size=8)


def spandrel_hat() -> nn.Module:
    return _restoration("HAT.__arch.HAT", "HAT", window_size=8)


def spandrel_dat() -> nn.Module:
    return _restoration("DAT.__arch.DAT", "DAT", split_size=(8, 8), depth=(2, 2, 2), num_heads=(2, 2, 2))


def spandrel_span() -> nn.Module:
    return _restoration("SPAN.__arch.span", "SPAN", num_in_ch=3, num_out_ch=3)


def spandrel_omnisr() -> nn.Module:
    return _restoration("OmniSR.__arch.OmniSR", "OmniSR", num_in_ch=3, num_out_ch=3, num_feat=64)


def spandrel_compact() -> nn.Module:
    return _restoration("Compact.__arch.SRVGG", "SRVGGNetCompact")


def spandrel_nafnet() -> nn.Module:
    settings = {"width": 32, "middle_blk_num": 2, "enc_blk_nums": [2, 2, 4], "dec_blk_nums": [2, 2, 2]}
    return _restoration("NAFNet.__arch.NAFNet_arch", "NAFNet", **settings)


def spandrel_scunet() -> nn.Module:
    return _restoration("SCUNet.__arch.SCUNet", "SCUNet")


def spandrel_drunet() -> nn.Module:
    return _restoration("DRUNet.__arch.network_unet", "DRUNet", in_nc=3, out_nc=3)


def spandrel_safmn() -> nn.Module:
    return _restoration("SAFMN.__arch.safmn", "SAFMN", dim=64)


def spandrel_fbcnn() -> nn.Module:
    return _restoration("FBCNN.__arch.FBCNN", "FBCNN")


def spandrel_plksr() -> nn.Module:
    return _restoration("PLKSR.__arch.PLKSR", "PLKSR", dim=64, n_blocks=12)


def spandrel_dncnn() -> nn.Module:
    return _restoration("DnCNN.__arch.network_dncnn", "DnCNN", in_nc=3, out_nc=3)


def spandrel_craft() -> nn.Module:
    return _restoration("CRAFT.__arch.CRAFT", "CRAFT")


def spandrel_atd() -> nn.Module:
    return _restoration("ATD.__arch.atd_arch", "ATD", window_size=8)


def _backbone(name: str) -> nn.Module:
    import torchvision

    network = getattr(torchvision.models, name)(weights=None)
    return nn.Sequential(*list(network.children())[:-1], nn.Flatten())


class TwoViews(nn.Module):
    """Self-supervised learning with lightly's heads: two views of an image through backbone and heads."""

    def __init__(self, backbone: nn.Module, projection: nn.Module, prediction: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone, self.projection = backbone, projection
        self.prediction = prediction or nn.Identity()

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        projected = [self.projection(self.backbone(view)) for view in (first, second)]
        return self.prediction(projected[0]), self.prediction(projected[1])


def lightly_simclr() -> nn.Module:
    from lightly.models.modules import heads

    return TwoViews(_backbone("resnet18"), heads.SimCLRProjectionHead(512, 512, 128))


def lightly_simsiam() -> nn.Module:
    from lightly.models.modules import heads

    return TwoViews(_backbone("resnet50"), heads.SimSiamProjectionHead(2048, 2048, 2048),
                    heads.SimSiamPredictionHead(2048, 512, 2048))  # fmt: skip


def lightly_dino() -> nn.Module:
    from lightly.models.modules import heads

    return TwoViews(_backbone("resnet34"), heads.DINOProjectionHead(512, 2048, 256, 4096))


def lightly_barlow() -> nn.Module:
    from lightly.models.modules import heads

    return TwoViews(_backbone("shufflenet_v2_x1_0"), _pooled(heads.BarlowTwinsProjectionHead(1024, 2048, 2048)))


def _pooled(head: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1024, -1)), nn.AdaptiveAvgPool1d(1), nn.Flatten(), head)


def _sentences(pooling: str, **config: Any) -> nn.Module:
    from sentence_transformers.sentence_transformer import modules

    width = config["hidden_size"]
    return Sentences([Tokens(**config), modules.Pooling(width, pooling_mode=pooling), modules.Normalize()])


def sentences_minilm() -> nn.Module:
    return _sentences("mean", model_type="bert", hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                      intermediate_size=1536)  # fmt: skip


def sentences_mpnet() -> nn.Module:
    return _sentences("mean", model_type="mpnet", hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                      intermediate_size=3072, vocab_size=30527, max_position_embeddings=514)  # fmt: skip


def sentences_bge_small() -> nn.Module:
    return _sentences("cls", model_type="bert", hidden_size=384, num_hidden_layers=12, num_attention_heads=12,
                      intermediate_size=1536)  # fmt: skip


def _detector(name: str) -> nn.Module:
    import torchvision

    return ListOfImages(getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None))


def detection_faster_rcnn() -> nn.Module:
    return _detector("fasterrcnn_mobilenet_v3_large_fpn")


def detection_faster_rcnn_resnet50() -> nn.Module:
    return _detector("fasterrcnn_resnet50_fpn")


def detection_retinanet() -> nn.Module:
    return _detector("retinanet_resnet50_fpn")


def detection_fcos() -> nn.Module:
    return _detector("fcos_resnet50_fpn")


def detection_ssd() -> nn.Module:
    return _detector("ssd300_vgg16")


def detection_ssdlite() -> nn.Module:
    return _detector("ssdlite320_mobilenet_v3_large")


def optical_flow_raft_small() -> nn.Module:
    import torchvision

    return torchvision.models.optical_flow.raft_small(weights=None)


def optical_flow_raft_large() -> nn.Module:
    import torchvision

    return torchvision.models.optical_flow.raft_large(weights=None)
