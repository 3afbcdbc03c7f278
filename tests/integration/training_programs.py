"""Training steps whose pictures and numbers are checked: small versions of well-known models."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import allow_mutation_on_saved_tensors, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import autogradviz


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(x).split(c, dim=2)
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        scores = (q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, layers=12, width=64, *, checkpointed=False):
        super().__init__()
        self.wte = nn.Embedding(100, width)
        self.wpe = nn.Embedding(32, width)
        self.h = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 100)
        self.checkpointed = checkpointed

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.lm_head(self.ln_f(x))


class BasicBlock(nn.Module):
    def __init__(self, width, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, blocks=(3, 4, 6, 3)):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        width = 8
        for number, count in enumerate(blocks, 1):
            out = 8 * 2 ** (number - 1)
            first = BasicBlock(width, out, 1 if number == 1 else 2)
            rest = [BasicBlock(out, out) for _ in range(count - 1)]
            setattr(self, f"layer{number}", nn.Sequential(first, *rest))
            width = out
        self.fc = nn.Linear(width, 10)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


class DoubleConv(nn.Sequential):
    def __init__(self, width, out):
        super().__init__(
            nn.Conv2d(width, out, 3, padding=1),
            nn.GroupNorm(4, out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1),
            nn.GroupNorm(4, out),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Upsampling and convolution alternate in two lists: each list alone is not contiguous."""

    def __init__(self, widths=(8, 16, 32, 64)):
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.downs = nn.ModuleList(DoubleConv(width, out) for width, out in pairs)
        self.mid = DoubleConv(widths[-1], 2 * widths[-1])
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths)
        )
        self.convs = nn.ModuleList(DoubleConv(2 * width, width) for width in reversed(widths))
        self.head = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        skips = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.mid(x)
        for up, conv, skip in zip(self.ups, self.convs, reversed(skips), strict=True):
            x = conv(torch.cat([skip, up(x)], dim=1))
        return self.head(x)


class ResidualUnit(nn.Module):
    """A convolution conditioned on the time step, as in a diffusion model."""

    def __init__(self, width, out, time_width):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv2d(width, out, 3, padding=1)
        self.time = nn.Linear(time_width, out)
        self.norm2 = nn.GroupNorm(4, out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(width, out, 1)

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(emb))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Denoiser(nn.Module):
    """Predicts the noise of an image; every unit of the way down feeds one of the way up."""

    def __init__(self, widths=(8, 16, 32), time_width=16):
        super().__init__()
        self.time_mlp = nn.Sequential(
            nn.Linear(8, time_width), nn.SiLU(), nn.Linear(time_width, time_width)
        )
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down = nn.ModuleList(
            ResidualUnit(a, b, time_width)
            for a, b in zip((widths[0], *widths), widths, strict=False)
        )
        self.mid = ResidualUnit(widths[-1], widths[-1], time_width)
        self.up = nn.ModuleList(
            ResidualUnit(2 * b, a, time_width)
            for a, b in zip((widths[0], *widths[:-1]), widths, strict=True)
        )
        self.conv_out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None] * torch.arange(1, 5)
        emb = self.time_mlp(torch.cat([angles.sin(), angles.cos()], dim=1))
        x = self.conv_in(x)
        skips = []
        for unit in self.down:
            x = unit(x, emb)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.mid(x, emb)
        for unit, skip in zip(reversed(self.up), reversed(skips), strict=True):
            x = unit(torch.cat([F.interpolate(x, scale_factor=2.0), skip], dim=1), emb)
        return self.conv_out(x)


def _trace(model, step, error=()):
    torch.manual_seed(0)
    trace = None
    try:
        with autogradviz.record(model) as trace:
            step()
    except error:
        pass
    return trace


def _language_step(model):
    tokens = torch.arange(64).reshape(2, 32)
    F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()


def transformer(layers=12):
    model = Transformer(layers)
    return _trace(model, lambda: _language_step(model))


def checkpointed_transformer(layers=4):
    model = Transformer(layers, checkpointed=True)
    return _trace(model, lambda: _language_step(model))


def offloaded_transformer(layers=2):
    model = Transformer(layers)

    def step():
        with save_on_cpu(pin_memory=True):  # which copies on the CPU too
            loss = model(torch.arange(64).reshape(2, 32)).sum()
        loss.backward()

    return _trace(model, step)


def resnet():
    model = ResNet()
    images = torch.rand(2, 3, 16, 16)
    return _trace(model, lambda: F.cross_entropy(model(images), torch.tensor([1, 2])).backward())


def unet():
    model = UNet()
    return _trace(model, lambda: model(torch.rand(1, 3, 32, 32)).square().mean().backward())


def rnn_loop(steps=400):
    def step():
        w_in, w_h = (torch.rand(8, 8, requires_grad=True) for _ in range(2))
        bias, x = torch.zeros(8, requires_grad=True), torch.rand(steps, 4, 8)
        h = torch.zeros(4, 8)
        for t in range(steps):
            h = torch.tanh(torch.addmm(bias, x[t], w_in) + h @ w_h)
        h.sum().backward()

    return _trace(None, step)


def gan():
    generator = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 16), nn.Tanh())
    discriminator = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    model = nn.ModuleDict({"generator": generator, "discriminator": discriminator})
    optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.1)

    def step():
        real, fake = torch.rand(4, 16), generator(torch.rand(4, 8))
        d_loss = F.softplus(-discriminator(real)).mean()
        d_loss = d_loss + F.softplus(discriminator(fake.detach())).mean()
        d_loss.backward()
        optimizer.step()
        F.softplus(-discriminator(fake)).mean().backward()

    return _trace(model, step)


def diffusion():
    model = Denoiser()

    def step():
        image, noise, t = torch.rand(2, 3, 16, 16), torch.randn(2, 3, 16, 16), torch.rand(2)
        alpha = t.cos()[:, None, None, None]
        noisy = alpha * image + (1 - alpha**2).sqrt() * noise
        F.mse_loss(model(noisy, t), noise).backward()

    return _trace(model, step)


def mutation_allowed():
    def step():
        with allow_mutation_on_saved_tensors():
            x = torch.rand(64, requires_grad=True)
            y = x.exp()
            z = (y * 3).sum()
            y.mul_(2)
            z.backward()

    return _trace(None, step)


def failing():
    model = Transformer(2)

    def step():
        scores = model(torch.arange(64).reshape(2, 32)).softmax(-1)
        loss = scores.square().sum()
        scores.mul_(2)
        loss.backward()

    return _trace(model, step, RuntimeError)


def data_write():
    def step():
        x = torch.rand(16, requires_grad=True)
        y = x.exp()
        loss = y.sum()
        y.data.mul_(2)
        loss.backward()

    return _trace(None, step)


def custom_save():
    """A view of a larger storage, and one tensor saved by two nodes."""

    def step():
        x = torch.rand(100, 8, requires_grad=True)
        y = x.sin()
        (y[:2].exp().sum() + y.cos().sum()).backward()

    return _trace(None, step)


def retained_checkpoint():
    """Each of the two backwards recomputes the blocks and releases what it recomputed."""
    model = Transformer(2, checkpointed=True)

    def step():
        loss = model(torch.arange(64).reshape(2, 32)).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    return _trace(model, step)


def nested_checkpoint():
    model = Transformer(2, checkpointed=True)

    def step():
        checkpoint(model, torch.arange(64).reshape(2, 32), use_reentrant=False).sum().backward()

    return _trace(model, step)


def double_backward():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def step():
        x = torch.rand(4, 8, requires_grad=True)
        y = model(x).sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        (y + gradient.square().sum()).backward()

    return _trace(model, step)


def several_steps():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(4, 8)).sum().backward()
            optimizer.step()

    return _trace(model, step)


def last_steps():
    """The steps before the last one are gone, and the last one is not complete."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(0)
    with autogradviz.record(model, keep_steps=1) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(4, 8)).sum().backward()
            optimizer.step()
        model(torch.rand(4, 8)).sum().backward()
    return trace


def written_to_files():
    """A user's hooks copy what the forward saves."""
    model, kept = Transformer(2), []

    def pack(tensor):
        kept.append(tensor.numpy(force=True).copy())
        return len(kept) - 1

    def step():
        with saved_tensors_hooks(pack, lambda at: torch.from_numpy(kept[at])):
            loss = model(torch.arange(64).reshape(2, 32)).sum()
        loss.backward()

    return _trace(model, step)


def graph_that_is_kept():
    model = Transformer(2)
    kept = []

    def step():
        for _ in range(2):
            kept.append(model(torch.arange(64).reshape(2, 32)).sum())
            kept[-1].backward(retain_graph=True)

    return _trace(model, step)


def compiled_mlp():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    compiled = torch.compile(model, backend="aot_eager")
    return _trace(model, lambda: compiled(torch.rand(4, 8)).exp().sum().backward())


def forward_on_two_threads():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def step():
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(model, [torch.rand(4, 8), torch.rand(4, 8)]))
        sum(result.sum() for result in results).backward()

    return _trace(model, step)


PICTURES = {
    "transformer": transformer,
    "resnet": resnet,
    "unet": unet,
    "rnn": rnn_loop,
    "gan": gan,
    "diffusion": diffusion,
}

PROGRAMS = {
    **PICTURES,
    "checkpointed": checkpointed_transformer,
    "offloaded": offloaded_transformer,
    "mutation_allowed": mutation_allowed,
    "failing": failing,
    "data_write": data_write,
    "views": custom_save,
    "retained_checkpoint": retained_checkpoint,
    "nested_checkpoint": nested_checkpoint,
    "double_backward": double_backward,
    "several_steps": several_steps,
    "two_threads": forward_on_two_threads,
    "last_steps": last_steps,
    "hooks_that_copy": written_to_files,
    "kept_graph": graph_that_is_kept,
    "compiled": compiled_mlp,
}
