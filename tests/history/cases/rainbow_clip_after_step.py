"""An agent clips its gradients after the step of the optimizer."""

from types import SimpleNamespace

import torch

from tests.history.case import Case

CASE = Case(
    repository="Kaixhin/Rainbow",
    fix="ffcfc369a1",
    license="MIT",
    kind="clip",
    what="`clip_grad_norm_` follows `step`, so the update uses gradients that are not clipped",
    paths=("agent.py", "model.py"),
    within={"agent.py": ((87, 87),)},
    also={"agent.py": (86,)},
)


def build():
    from agent import Agent

    args = SimpleNamespace(
        atoms=11, V_min=-2.0, V_max=2.0, batch_size=4, multi_step=3, discount=0.99, model=None,
        norm_clip=1e-3, lr=1e-3, adam_eps=1.5e-4, history_length=4, hidden_size=16, noisy_std=0.1,
        device=torch.device("cpu"),
    )  # fmt: skip
    agent = Agent(args, SimpleNamespace(action_space=lambda: 3))
    batch = (
        torch.arange(4), torch.rand(4, 4, 84, 84), torch.randint(3, (4,)), torch.randn(4),
        torch.rand(4, 4, 84, 84), torch.ones(4, 1), torch.ones(4),
    )  # fmt: skip
    losses, used = [], []
    memory = SimpleNamespace(
        sample=lambda size: batch, update_priorities=lambda idxs, loss: losses.append(loss.mean())
    )

    def measure(optimizer, *_):
        with torch.no_grad():
            norms = [p.grad.norm() for p in agent.online_net.parameters()]
            used.append(float(torch.stack(norms).norm()))

    for value in vars(agent).values():
        if isinstance(value, torch.optim.Optimizer):
            value.register_step_pre_hook(measure)

    def step(number):
        agent.learn(memory)
        return {"loss": losses[-1], "used": used[-1]}

    return agent.online_net, step


def symptom(bug, fix):
    return bug.values[0]["used"] > 2 * bug.norm()
