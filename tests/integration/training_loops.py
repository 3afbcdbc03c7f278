"""Typical correct training loops, which must give no finding above a hint."""

import copy
import warnings

import torch
import torch.nn.functional as F
from programs import program
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def everything(*nets):
    """Return all gradients, parameters and buffers of the networks."""
    state = [tensor.clone() for net in nets for tensor in net.state_dict().values()]
    return [p.grad for net in nets for p in net.parameters()], state


def mlp(i=8, o=8):
    return nn.Sequential(nn.Linear(i, 16), nn.ReLU(), nn.Linear(16, o))


@program
def moco():
    q = mlp()
    k = copy.deepcopy(q)
    for p in k.parameters():
        p.requires_grad_(False)
    opt = torch.optim.SGD(q.parameters(), lr=0.1, momentum=0.9)
    queue = F.normalize(torch.randn(8, 32), dim=0)
    for _ in range(3):
        x = torch.randn(4, 8)
        a = F.normalize(q(x), dim=1)
        with torch.no_grad():
            for pq, pk in zip(q.parameters(), k.parameters(), strict=False):
                pk.mul_(0.99).add_(pq, alpha=0.01)
            b = F.normalize(k(x), dim=1)
        logits = torch.cat([(a * b).sum(1, keepdim=True), a @ queue.clone()], 1)
        loss = F.cross_entropy(logits / 0.07, torch.zeros(4, dtype=torch.long))
        queue[:, :4] = b.t()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return everything(q)


@program
def ppo():
    net = mlp(8, 3)
    v = mlp(8, 1)
    opt = torch.optim.Adam([*net.parameters(), *v.parameters()])
    s = torch.randn(16, 8)
    with torch.no_grad():
        old = F.log_softmax(net(s), -1)
        a = torch.distributions.Categorical(logits=old).sample()
        adv = torch.randn(16)
        lp = old.gather(1, a[:, None])[:, 0]
    for _ in range(3):
        d = torch.distributions.Categorical(logits=net(s))
        r = (d.log_prob(a) - lp).exp()
        loss = (
            -torch.min(r * adv, r.clamp(0.8, 1.2) * adv).mean()
            - 0.01 * d.entropy().mean()
            + F.mse_loss(v(s)[:, 0], adv)
        )
        opt.zero_grad(set_to_none=False)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
    return everything(net, v)


@program
def dqn():
    q = mlp(8, 4)
    t = copy.deepcopy(q)
    opt = torch.optim.RMSprop(q.parameters())
    for i in range(3):
        s = torch.randn(8, 8)
        a = torch.randint(4, (8, 1))
        with torch.no_grad():
            y = torch.randn(8) + 0.9 * t(s).max(1).values
        loss = F.smooth_l1_loss(q(s).gather(1, a)[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i == 1:
            t.load_state_dict(q.state_dict())
    return everything(q)


@program
def lbfgs():
    n = mlp()
    opt = torch.optim.LBFGS(n.parameters(), max_iter=4)
    x, y = torch.randn(8, 8), torch.randn(8, 8)

    def c():
        opt.zero_grad()
        loss = F.mse_loss(n(x), y)
        loss.backward()
        return loss

    opt.step(c)
    opt.step(c)
    return everything(n)


@program
def amp_scaler():
    n = nn.Sequential(mlp(), nn.LayerNorm(8))
    opt = torch.optim.AdamW(n.parameters())
    sc = torch.amp.GradScaler("cpu")
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = n(torch.randn(4, 8)).float().square().mean()
        sc.scale(loss).backward()
        sc.unscale_(opt)
        nn.utils.clip_grad_norm_(n.parameters(), 1.0)
        sc.step(opt)
        sc.update()
        opt.zero_grad()
    return everything(n)


@program
def moe_checkpointed():
    class MoE(nn.Module):
        def __init__(s):
            super().__init__()
            s.g = nn.Linear(8, 4)
            s.e = nn.ModuleList(mlp() for _ in range(4))
            s.aux = 0.0
            s.register_buffer("load", torch.zeros(4))

        def forward(s, x):
            p = s.g(x).softmax(-1)
            _, i = p.topk(2)
            out = torch.zeros_like(x)
            for k, e in enumerate(s.e):
                m = (i == k).any(-1)
                if m.any():
                    out = out.index_add(0, m.nonzero()[:, 0], e(x[m]) * p[m][:, k : k + 1])
            return x + out, p.mean(0).square().sum()

    ls = nn.ModuleList(MoE() for _ in range(3))
    opt = torch.optim.Adam(ls.parameters())
    for _ in range(2):
        x = torch.randn(10, 8)
        aux = 0
        for layer in ls:
            x, a = checkpoint(layer, x, use_reentrant=False)
            aux = aux + a
        opt.zero_grad()
        (x.square().mean() + 0.01 * aux).backward()
        opt.step()
    return everything(ls)


@program
def freeze_schedule():
    n = nn.Sequential(mlp(), mlp())
    opt = torch.optim.SGD(n.parameters(), lr=0.1)
    for i in range(3):
        n[0].requires_grad_(i > 0)
        loss = n(torch.randn(4, 8)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return everything(n)


@program
def distill():
    t = mlp().eval().requires_grad_(False)
    s = mlp()
    opt = torch.optim.Adam(s.parameters())
    for _ in range(2):
        x = torch.randn(4, 8)
        loss = F.kl_div(F.log_softmax(s(x), -1), F.softmax(t(x), -1), reduction="batchmean")
        opt.zero_grad()
        loss.backward()
        opt.step()
    return everything(s)


@program
def ckpt_logging_counter():
    class B(nn.Module):
        def __init__(s):
            super().__init__()
            s.n = mlp()
            s.calls = 0
            s.last = None
            s.history = []

        def forward(s, x):
            s.calls += 1
            y = s.n(x)
            s.last = y.detach().mean()
            s.history.append(float(s.last))
            return y

    b = B()
    for _ in range(2):
        checkpoint(b, torch.randn(4, 8, requires_grad=True), use_reentrant=False).sum().backward()
    return everything(b)


@program
def ckpt_gpt_dropout_step_between():
    bl = nn.ModuleList(
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True) for _ in range(3)
    )
    opt = torch.optim.AdamW(bl.parameters())
    sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1 / (i + 1))
    for _ in range(2):
        x = torch.randn(2, 5, 16)
        for b in bl:
            x = checkpoint(b, x, use_reentrant=False)
        opt.zero_grad()
        x.square().mean().backward()
        opt.step()
        sch.step()
    return everything(bl)


@program
def gradient_accumulation_reentrant():
    n = nn.Sequential(*[mlp() for _ in range(4)])
    opt = torch.optim.SGD(n.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(2, 8, requires_grad=True)
        (checkpoint_sequential(n, 2, x, use_reentrant=True).square().mean() / 4).backward()
    opt.step()
    return everything(n)


@program
def tbptt_lstm():
    n = nn.LSTM(8, 8, batch_first=True)
    h = None
    opt = torch.optim.SGD(n.parameters(), lr=0.1)
    for _ in range(3):
        o, h = n(torch.randn(2, 5, 8), h)
        h = tuple(t.detach() for t in h)
        opt.zero_grad()
        o.square().mean().backward()
        opt.step()
    return everything(n)


@program
def vae_gan():
    e, d, g = mlp(8, 8), mlp(4, 8), mlp(8, 1)
    oa = torch.optim.Adam([*e.parameters(), *d.parameters()])
    ob = torch.optim.Adam(g.parameters())
    for _ in range(2):
        x = torch.randn(4, 8)
        m, lv = e(x).chunk(2, 1)
        z = m + torch.randn_like(m) * (lv / 2).exp()
        r = d(z)
        la = F.mse_loss(r, x) - 0.5 * (1 + lv - m**2 - lv.exp()).mean() + F.softplus(-g(r)).mean()
        oa.zero_grad()
        la.backward()
        oa.step()
        lb = F.softplus(-g(x)).mean() + F.softplus(g(r.detach())).mean()
        ob.zero_grad()
        lb.backward()
        ob.step()
    return everything(e, d, g)


@program
def ema_and_wn():
    n = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    s = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    av = torch.optim.swa_utils.AveragedModel(nn.Sequential(n, nn.Linear(8, 8)))
    opt = torch.optim.SGD([*n.parameters(), *s.parameters()], lr=0.1)
    for _ in range(2):
        s(n(torch.randn(4, 8))).square().mean().backward()
        opt.step()
        opt.zero_grad()
        av.update_parameters(av.module)
    return everything(n, s)


@program
def dropout_eval_switch():
    n = nn.Sequential(mlp(), nn.Dropout(0.3), nn.BatchNorm1d(8))
    opt = torch.optim.SGD(n.parameters(), lr=0.1)
    for _ in range(2):
        n.train()
        opt.zero_grad()
        checkpoint(n[0], torch.randn(4, 8), use_reentrant=False).sum().backward()
        loss = n(torch.randn(4, 8)).square().mean()
        loss.backward()
        opt.step()
        n.eval()
        with torch.no_grad():
            n(torch.randn(4, 8))
    return everything(n)


@program
def second_order():
    n = mlp()
    x = torch.randn(4, 8)
    g = torch.autograd.grad(n(x).square().mean(), list(n.parameters()), create_graph=True)
    f = [p - 0.1 * q for p, q in zip(n.parameters(), g, strict=False)]
    torch.func.functional_call(
        n, dict(zip([k for k, _ in n.named_parameters()], f, strict=False)), (x,)
    ).square().mean().backward()
    return everything(n)


@program
def relu_inplace_resnet():
    class R(nn.Module):
        def __init__(s):
            super().__init__()
            s.c = nn.Conv2d(4, 4, 3, padding=1)
            s.b = nn.BatchNorm2d(4)
            s.r = nn.ReLU(inplace=True)

        def forward(s, x):
            o = s.b(s.c(x))
            o += x
            return s.r(o)

    n = nn.Sequential(R(), R(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    opt = torch.optim.SGD(n.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        n(torch.randn(2, 4, 6, 6)).square().mean().backward()
        opt.step()
    return everything(n)


def warn_about_callers(what, callers=6):
    for level in range(1, callers + 1):
        warnings.warn(what, stacklevel=level)


class Warner(nn.Module):
    def forward(self, x):
        warn_about_callers("forward")
        return F.softmax(x) * 2


class WarningFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        warn_about_callers("function's forward", 4)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        warn_about_callers("function's backward")
        return gradient


def warning_pack(x):
    warn_about_callers("pack", 3)
    return x


def warning_unpack(x):
    warn_about_callers("unpack")
    return x


@program
def warnings_about_callers():
    m = nn.Sequential(Warner(), nn.Softmax())
    m.register_full_backward_hook(lambda *_: warn_about_callers("module's hook"))
    x = torch.rand(2, 3, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda _: warn_about_callers("leaf's hook"))
    y = WarningFunction.apply(x)
    y.register_hook(lambda _: warn_about_callers("tensor's hook"))
    y.sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(warning_pack, warning_unpack):
        z = x.exp()
    z.sum().backward()
    m(x).sum().backward()
    m(torch.rand(2, 3)).sum()
    for reentrant in (False, True):
        checkpoint(m, x, use_reentrant=reentrant).sum().backward()
    return x.grad


@program
def same_warning_from_two_backwards():
    m = nn.Sequential(nn.Linear(3, 3))
    m.register_full_backward_hook(lambda *_: None)
    m(torch.rand(2, 3)).sum().backward()  # the input needs no gradient: PyTorch warns here
    m(torch.rand(2, 3)).sum().backward()  # and here
    return m[0].weight.grad
