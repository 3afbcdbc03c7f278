"""Models of other packages with random weights: nothing is downloaded.

Each entry of ``MODELS`` builds a model and a function that returns its loss. Configurations are
small, so that steps are bound by operators, like those of most models on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

BATCH = 2
"""Samples in the inputs of a step, for most models."""
EAGER = ("plain", "bf16")
CHECKPOINTED = ("plain", "checkpoint", "bf16")
LORA = (*CHECKPOINTED, "lora")
COMPILED = (*LORA, "compile")


class Entry(NamedTuple):
    """A model.

    Attributes:
        build: returns the model, and a function that returns the loss of a step.
        variants: in which ways it is trained, see ``variants.py``.
        lora: names of the modules that get adapters.
    """

    build: Callable[[], tuple[nn.Module, Callable[[], torch.Tensor]]]
    variants: tuple[str, ...] = CHECKPOINTED
    lora: str | tuple[str, ...] = "all-linear"


def _transformer(name: str, head: str, inputs: Callable, **sizes):
    """Return a builder of a model of transformers."""

    def build():
        import transformers

        config = getattr(transformers, f"{name}Config")(**sizes)
        model = getattr(transformers, f"{name}{head}")(config)
        given = inputs()
        return model, lambda: _loss(model(**given))

    return build


def _loss(output):
    """Return the loss of an output; where the model has none, the mean square of its tensors."""
    if isinstance(output, torch.Tensor):
        return output.float().square().mean()
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    return loss if loss is not None else _loss(next(iter(output.values())))


def _words():
    words = torch.randint(4, 256, (BATCH, 32))
    return {"input_ids": words, "labels": words}


def _image(**more):
    return {"pixel_values": torch.randn(BATCH, 3, 64, 64), **more}


def _labeled_image():
    return _image(labels=torch.arange(BATCH) % 2)


def _sound():
    return {"input_values": torch.randn(BATCH, 4000), "labels": torch.randint(1, 30, (BATCH, 5))}


def _decoder(name: str, head: str = "ForCausalLM", **sizes):
    common = {
        "vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 4, "pad_token_id": 0,
    }  # fmt: skip
    return _transformer(name, head, _words, **(common | sizes))


def _encoder(name: str, **sizes):
    return _decoder(name, "ForMaskedLM", **sizes)


def _vision(name: str, head: str = "ForImageClassification", **sizes):
    common = {
        "image_size": 64, "patch_size": 16, "hidden_size": 128, "intermediate_size": 256,
        "num_hidden_layers": 4, "num_attention_heads": 4,
    }  # fmt: skip
    return _transformer(name, head, _labeled_image, **(common | sizes))


def _speech(name: str):
    convolutions = {"conv_dim": (32, 32, 32), "conv_stride": (5, 4, 4), "conv_kernel": (10, 4, 4)}
    return _transformer(
        name, "ForCTC", _sound, vocab_size=32, hidden_size=64, num_hidden_layers=3,
        num_attention_heads=4, intermediate_size=128, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, mask_time_length=2, **convolutions,
    )  # fmt: skip


def _whisper():
    sounds, words = torch.randn(BATCH, 16, 100), torch.randint(4, 256, (BATCH, 16))
    return {"input_features": sounds, "labels": words}


def _clip():
    return {**_image(), "input_ids": torch.randint(4, 256, (BATCH, 16)), "return_loss": True}


def _detr():
    from transformers import DetrConfig, DetrModel, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"]
    )
    config = DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=backbone, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=128, decoder_ffn_dim=128, encoder_attention_heads=4,
        decoder_attention_heads=4, num_queries=10,
    )  # fmt: skip
    model, given = DetrModel(config), _image()
    return model, lambda: _loss(model(**given))


def _diffusion(name: str, inputs: Callable, **sizes):
    """Return a builder of a model of diffusers."""

    def build():
        import diffusers

        model = getattr(diffusers, name)(**sizes)
        given = inputs()
        return model, lambda: model(**given).sample.float().square().mean()

    return build


def _noisy(channels: int = 4, more: Callable = dict, name: str = "sample"):
    def inputs():
        sample = torch.randn(2, channels, 16, 16)
        return {name: sample, "timestep": torch.tensor([3, 7]), **more()}

    return inputs


def _condition():
    return {"encoder_hidden_states": torch.randn(2, 6, 32)}


def _classes():
    return {"class_labels": torch.tensor([1, 2])}


def _sd3():
    return {
        **_noisy(name="hidden_states")(), "encoder_hidden_states": torch.randn(2, 6, 32),
        "pooled_projections": torch.randn(2, 64),
    }  # fmt: skip


def _flux():
    return {
        "hidden_states": torch.randn(2, 16, 4), "encoder_hidden_states": torch.randn(2, 6, 32),
        "pooled_projections": torch.randn(2, 32), "timestep": torch.tensor([0.3, 0.7]),
        "img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(6, 3),
    }  # fmt: skip


def _timm(name: str, **sizes):
    """Return a builder of a classifier of timm."""

    def build():
        import timm

        model = timm.create_model(name, num_classes=10, **sizes)
        images, labels = torch.randn(BATCH, 3, 64, 64), torch.arange(1, BATCH + 1) % 10
        return model, lambda: F.cross_entropy(model(images).float(), labels)

    return build


def _torchvision(kind: str, name: str, **sizes):
    """Return a builder of a model of torchvision; ``kind`` says what it computes."""

    def build():
        import torchvision.models

        module = getattr(torchvision.models, kind, torchvision.models)
        none = {"weights": None} | ({} if kind == "video" else {"weights_backbone": None})
        model = getattr(module, name)(**none, **sizes)
        return model, _TASKS[kind](model)

    return build


def _detects(model):
    images = [torch.rand(3, 64, 64), torch.rand(3, 64, 64)]
    boxes = torch.tensor([[4.0, 4.0, 40.0, 40.0], [20.0, 10.0, 60.0, 50.0]])
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 2])} for _ in images]
    if "Mask" in type(model).__name__:
        targets = [{**each, "masks": torch.ones(2, 64, 64, dtype=torch.uint8)} for each in targets]
    return lambda: sum(model(images, targets).values())


def _segments(model):
    images, labels = torch.randn(2, 3, 64, 64), torch.randint(0, 5, (2, 64, 64))
    return lambda: F.cross_entropy(model(images)["out"].float(), labels)


def _classifies_video(model):
    clips, labels = torch.randn(1, 3, 4, 32, 32), torch.tensor([1])
    return lambda: F.cross_entropy(model(clips).float(), labels)


_TASKS = {"detection": _detects, "segmentation": _segments, "video": _classifies_video}


def _graphs(name: str, **sizes):
    """Return a builder of a model of torch_geometric for the nodes of a random graph."""

    def build():
        import torch_geometric.nn

        model = getattr(torch_geometric.nn, name)(16, 64, 4, 5, **sizes)
        nodes, edges = torch.randn(200, 16), torch.randint(0, 200, (2, 1000))
        labels = torch.randint(0, 5, (200,))
        return model, lambda: F.cross_entropy(model(nodes, edges).float(), labels)

    return build


_EXPERTS = {"moe_intermediate_size": 64, "num_experts_per_tok": 2}
_BLOCKS = {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "block_out_channels": (32, 64),
}  # fmt: skip
_DETECTION = {
    "num_classes": 5, "min_size": 64, "max_size": 64, "rpn_pre_nms_top_n_train": 50,
    "rpn_post_nms_top_n_train": 20, "box_batch_size_per_image": 8,
}  # fmt: skip
_SMALL_UNET = {"sample_size": 16, "layers_per_block": 1, "norm_num_groups": 8}

MODELS: dict[str, Entry] = {
    # transformers: decoders
    "llama": Entry(_decoder("Llama", num_hidden_layers=6), COMPILED),
    "gpt2": Entry(_transformer("GPT2", "LMHeadModel", _words, vocab_size=256, n_embd=128,
                               n_layer=4, n_head=4, n_positions=64), COMPILED),
    "gpt-neox": Entry(_decoder("GPTNeoX"), LORA),
    "mistral": Entry(_decoder("Mistral", num_key_value_heads=2), LORA),
    "qwen3": Entry(_decoder("Qwen3", head_dim=32), LORA),
    "gemma2": Entry(_decoder("Gemma2", head_dim=32), LORA),
    "opt": Entry(_decoder("OPT", ffn_dim=256, word_embed_proj_dim=128), LORA),
    "bloom": Entry(_transformer("Bloom", "ForCausalLM", _words, vocab_size=256, hidden_size=128,
                                n_layer=4, n_head=4), LORA),
    # mixtures of experts
    "mixtral": Entry(_decoder("Mixtral", num_local_experts=4, output_router_logits=True)),
    "qwen2-moe": Entry(_decoder("Qwen2Moe", num_experts=4, shared_expert_intermediate_size=64,
                                **_EXPERTS)),
    "deepseek-v3": Entry(_decoder("DeepseekV3", n_routed_experts=4, n_group=2, topk_group=1,
                                  q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16,
                                  qk_nope_head_dim=16, v_head_dim=32, first_k_dense_replace=1,
                                  **_EXPERTS)),
    "gpt-oss": Entry(_decoder("GptOss", num_local_experts=4, num_experts_per_tok=2, head_dim=32)),
    # encoders
    "bert": Entry(_encoder("Bert"), COMPILED),
    "roberta": Entry(_encoder("Roberta"), LORA),
    "distilbert": Entry(_encoder("DistilBert", dim=128, hidden_dim=256, n_layers=4, n_heads=4)),
    "electra": Entry(_encoder("Electra", embedding_size=64)),
    "deberta-v2": Entry(_encoder("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"],
                                 position_buckets=16)),
    "modernbert": Entry(_encoder("ModernBert", cls_token_id=1, sep_token_id=2, bos_token_id=1,
                                 eos_token_id=2)),
    "longformer": Entry(_encoder("Longformer", attention_window=8)),
    # encoders with decoders
    "t5": Entry(_transformer("T5", "ForConditionalGeneration", _words, vocab_size=256, d_model=128,
                             d_kv=32, d_ff=256, num_layers=3, num_heads=4,
                             decoder_start_token_id=0), LORA),
    "bart": Entry(_transformer("Bart", "ForConditionalGeneration", _words, vocab_size=256,
                               d_model=128, encoder_layers=2, decoder_layers=2,
                               encoder_attention_heads=4, decoder_attention_heads=4,
                               encoder_ffn_dim=256, decoder_ffn_dim=256), LORA),
    # state space, and mixtures with attention
    "mamba": Entry(_transformer("Mamba", "ForCausalLM", _words, vocab_size=256, hidden_size=64,
                                num_hidden_layers=3, state_size=8)),
    "mamba2": Entry(_transformer("Mamba2", "ForCausalLM", _words, vocab_size=256, hidden_size=64,
                                 num_hidden_layers=3, state_size=8, num_heads=8, head_dim=16,
                                 n_groups=1, chunk_size=16)),
    "rwkv": Entry(_transformer("Rwkv", "ForCausalLM", _words, vocab_size=256, hidden_size=64,
                               num_hidden_layers=3, attention_hidden_size=64)),
    "recurrent-gemma": Entry(_decoder("RecurrentGemma", lru_width=128, attention_window_size=16)),
    # vision, and vision with language
    "vit": Entry(_vision("ViT"), LORA),
    "swin": Entry(_transformer("Swin", "ForImageClassification", _labeled_image, image_size=64,
                               patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4],
                               window_size=4)),
    "resnet": Entry(_transformer("ResNet", "ForImageClassification", _labeled_image,
                                 embedding_size=16, hidden_sizes=[32, 64], depths=[2, 2]), EAGER),
    "segformer": Entry(_transformer("Segformer", "ForImageClassification", _labeled_image,
                                    hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])),
    "dinov2": Entry(_vision("Dinov2")),
    "detr": Entry(_detr),
    "clip": Entry(_transformer(
        "CLIP", "Model", _clip,
        text_config={"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
                     "num_hidden_layers": 2, "num_attention_heads": 4, "eos_token_id": 255},
        vision_config={"image_size": 64, "patch_size": 16, "hidden_size": 64,
                       "intermediate_size": 128, "num_hidden_layers": 2,
                       "num_attention_heads": 4})),
    # speech
    "whisper": Entry(_transformer("Whisper", "ForConditionalGeneration", _whisper, vocab_size=256,
                                  d_model=64, encoder_layers=2, decoder_layers=2,
                                  encoder_attention_heads=4, decoder_attention_heads=4,
                                  encoder_ffn_dim=128, decoder_ffn_dim=128, num_mel_bins=16,
                                  max_source_positions=50, max_target_positions=32,
                                  decoder_start_token_id=1, pad_token_id=0, eos_token_id=2), LORA),
    "wav2vec2": Entry(_speech("Wav2Vec2")),
    "hubert": Entry(_speech("Hubert")),
    # diffusers
    "unet-condition": Entry(_diffusion(
        "UNet2DConditionModel", _noisy(more=_condition), in_channels=4,
        out_channels=4, cross_attention_dim=32, attention_head_dim=8, **_BLOCKS, **_SMALL_UNET),
        LORA, ("to_q", "to_v")),
    "unet": Entry(_diffusion("UNet2DModel", _noisy(3), block_out_channels=(32, 64),
                             down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                             up_block_types=("AttnUpBlock2D", "UpBlock2D"), **_SMALL_UNET)),
    "vae": Entry(_diffusion("AutoencoderKL", lambda: {"sample": torch.randn(2, 3, 32, 32)},
                            block_out_channels=(16, 32), norm_num_groups=8,
                            down_block_types=("DownEncoderBlock2D",) * 2,
                            up_block_types=("UpDecoderBlock2D",) * 2)),
    "dit": Entry(_diffusion("DiTTransformer2DModel",
                            _noisy(more=_classes, name="hidden_states"), sample_size=16,
                            in_channels=4, out_channels=4, num_layers=3, num_attention_heads=4,
                            attention_head_dim=16, patch_size=4, num_embeds_ada_norm=10)),
    "sd3": Entry(_diffusion("SD3Transformer2DModel", _sd3, sample_size=16, patch_size=4,
                            in_channels=4, out_channels=4, num_layers=3, attention_head_dim=16,
                            num_attention_heads=4, joint_attention_dim=32, pos_embed_max_size=8,
                            caption_projection_dim=64, pooled_projection_dim=64)),
    "flux": Entry(_diffusion("FluxTransformer2DModel", _flux, in_channels=4, num_layers=2,
                             num_single_layers=2, attention_head_dim=16, num_attention_heads=4,
                             joint_attention_dim=32, pooled_projection_dim=32,
                             axes_dims_rope=(4, 6, 6), patch_size=1)),
    # timm
    "timm-resnet18": Entry(_timm("resnet18")),
    "timm-vit": Entry(_timm("vit_tiny_patch16_224", img_size=64, depth=4), LORA, ("qkv", "proj")),
    "timm-convnext": Entry(_timm("convnext_atto")),
    "timm-efficientnet": Entry(_timm("efficientnet_lite0")),
    "timm-mobilenetv3": Entry(_timm("mobilenetv3_small_050")),
    "timm-mixer": Entry(_timm("mixer_s32_224", img_size=64), EAGER),
    "timm-swin": Entry(_timm("swin_tiny_patch4_window7_224", img_size=64, window_size=4,
                             embed_dim=32, depths=(2, 2), num_heads=(2, 4))),
    # torch_geometric
    "pyg-gcn": Entry(_graphs("GCN"), EAGER),
    "pyg-gat": Entry(_graphs("GAT", heads=4), EAGER),
    "pyg-sage": Entry(_graphs("GraphSAGE"), EAGER),
    "pyg-gin": Entry(_graphs("GIN"), EAGER),
    "pyg-pna": Entry(_graphs("PNA", aggregators=["mean", "max", "std"], scalers=["identity"],
                             deg=torch.ones(10, dtype=torch.long)), EAGER),
    # torchvision
    "tv-faster-rcnn": Entry(_torchvision("detection", "fasterrcnn_mobilenet_v3_large_320_fpn",
                                         **_DETECTION), EAGER[:1]),
    "tv-mask-rcnn": Entry(_torchvision("detection", "maskrcnn_resnet50_fpn", **_DETECTION),
                          EAGER[:1]),
    "tv-ssdlite": Entry(_torchvision("detection", "ssdlite320_mobilenet_v3_large", num_classes=5),
                        EAGER[:1]),
    "tv-lraspp": Entry(_torchvision("segmentation", "lraspp_mobilenet_v3_large", num_classes=5),
                       EAGER),
    "tv-deeplab": Entry(_torchvision("segmentation", "deeplabv3_mobilenet_v3_large",
                                     num_classes=5), EAGER),
    "tv-r3d": Entry(_torchvision("video", "r3d_18", num_classes=5), EAGER),
}  # fmt: skip
