"""The loss of a discriminator leaves gradients in the generator, which add to its next ones."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, find, statement

FILE = "magvit2_pytorch/magvit2_pytorch.py"
TRAINER = "magvit2_pytorch/trainer.py"
CASE = Case(
    repository="lucidrains/magvit2-pytorch",
    fix="dd86b76e19",
    license="MIT",
    kind="detach",
    what="generated frames are not detached, and the generator is cleared before that, not after",
    paths=(FILE, TRAINER),
    steps=2,
    options={"keep_steps": 3},
)


class Tokenizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.conv_out = nn.Conv3d(3, 6, 1), nn.Module()
        self.conv_out.conv = nn.Conv3d(6, 3, 1)
        self.discr = nn.Sequential(nn.Conv2d(3, 4, 2), nn.LeakyReLU(0.1), nn.Flatten(),
                                   nn.Linear(36, 1))  # fmt: skip
        self.vgg = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten()).requires_grad_(False)
        self.register_buffer("zero", torch.tensor(0.0))
        self.image_size, self.time_downsample_factor, self.use_fsq = 4, 1, True
        self.has_gan, self.use_vgg, self.has_multiscale_discrs = True, True, False
        self.grad_penalty_loss_weight, self.multiscale_adversarial_loss_weight = 1.0, 1.0
        self.quantizer_aux_loss_weight, self.perceptual_loss_weight = 1.0, 0.1
        self.adversarial_loss_weight = 0.1

    def encode(self, video, **options):
        return torch.tanh(self.enc(video))

    def quantizers(self, x):
        return x, None

    def decode(self, x, **options):
        return self.conv_out.conv(x)


def build():
    wanted = ["exists", "divisible_by", "pick_video_frame", "gradient_penalty", "hinge_discr_loss",
              "hinge_gen_loss", "grad_layer_wrt_loss", "LossBreakdown", "DiscrLossBreakdown"]  # fmt: skip
    names = definitions(FILE, wanted, {"beartype": lambda function: function})
    source = find(FILE).read_text(encoding="utf-8")
    before = source[: source.index("video_or_images: Tensor")]
    statement(FILE, "def forward(", names, before.count("def forward(") - 1)
    Tokenizer.forward = names["forward"]
    model = Tokenizer()
    generator = [*model.enc.parameters(), *model.conv_out.parameters()]
    accelerator = SimpleNamespace(
        no_sync=nullcontext, autocast=nullcontext, backward=lambda loss: loss.backward()
    )
    losses, used = [], []

    def log(**values):
        losses.extend(v for name, v in values.items() if name == "total_loss")

    trainer = SimpleNamespace(
        model=model, accelerator=accelerator, step=torch.tensor(0), grad_accum_every=1,
        log=log, print=lambda text: None, max_grad_norm=None, wait=lambda: None, is_main=False,
        apply_gradient_penalty_every=4, has_multiscale_discrs=False, multiscale_discr_optimizers=[],
        optimizer=torch.optim.SGD(generator, lr=0.01),
        discr_optimizer=torch.optim.SGD(model.discr.parameters(), lr=0.01),
    )  # fmt: skip
    trainer.optimizer.register_step_pre_hook(lambda *_: used.append(generator[0].grad.clone()))
    names.update(partial=partial, nullcontext=nullcontext)
    statement(TRAINER, "def train_step(", names)
    videos = iter([(torch.randn(2, 3, 3, 4, 4),) for _ in range(4)])

    def step(number):
        names["train_step"](trainer, videos)
        return {"loss": losses[-1], "used": used[-1]}

    return model, step


def symptom(bug, fix):
    first, second = bug.values[1]["used"], fix.values[1]["used"]
    return bool((first - second).norm() > 0.1 * second.norm())
