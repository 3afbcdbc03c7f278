"""The loss of a policy gives gradients to the critics, and one optimizer uses all of them."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "rlpyt/algos/qpg/sac.py"
CASE = Case(
    repository="astooke/rlpyt",
    fix="a21da051cf",  # the first commit at which the change runs
    bug="bf7b19ee28",
    license="MIT",
    kind="optimizer",
    what="the critics are stepped with the gradients of the losses of critics and policy",
    paths=(FILE,),
    within={FILE: ((93, 96), (127, 133))},
    also={FILE: (171, 178)},
)


class Value(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, *inputs):
        return self.net(torch.cat(inputs, -1)).squeeze(-1)


def build():
    names = {
        "RlAlgorithm": object, "buffer_to": lambda value, device: value,
        "valid_mean": lambda x, valid: x.mean(), "Gaussian": None,
    }  # fmt: skip
    names = definitions(FILE, ["OptInfo", "SAC"], names)
    model = nn.ModuleDict({
        "pi": nn.Linear(4, 4), "q1": Value(6), "q2": Value(6), "v": Value(4), "target_v": Value(4),
    })  # fmt: skip

    def pi(observation, *_):
        mean, log_std = model["pi"](observation).chunk(2, -1)
        chosen = torch.distributions.Normal(mean, log_std.exp())
        action = chosen.rsample()
        return action, chosen.log_prob(action).sum(-1), (mean, log_std)

    parts = {name: model[name].parameters for name in ("pi", "q1", "q2", "v")}
    agent = SimpleNamespace(
        q=lambda observation, _, __, action: (model["q1"](observation, action),
                                              model["q2"](observation, action)),
        v=lambda observation, *_: model["v"](observation), pi=pi, device="cpu", recurrent=False,
        target_v=lambda observation, *_: model["target_v"](observation), update_target=lambda tau: 0,
        parameters=lambda: [p for part in parts.values() for p in part()],
        parameters_by_model=lambda: [part() for part in parts.values()],
        **{f"{name}_parameters": part for name, part in parts.items()},
    )  # fmt: skip
    used = {}

    def optimizer(parameters, lr):
        result = torch.optim.Adam(parameters, lr=lr)

        def keep(*_):
            for p in result.param_groups[0]["params"]:
                if p is model["q1"].net[0].weight:
                    used["q1"] = p.grad.clone()

        result.register_step_pre_hook(keep)
        return result

    algorithm = names["SAC"].__new__(names["SAC"])
    inputs = (torch.randn(8, 4), None, None)
    samples = SimpleNamespace(
        agent_inputs=inputs, target_inputs=(torch.randn(8, 4), None, None),
        action=torch.randn(8, 2), return_=torch.randn(8), done_n=torch.zeros(8),
    )  # fmt: skip
    for name, value in {
        "agent": agent, "OptimCls": optimizer, "learning_rate": 1e-3, "optim_kwargs": {},
        "action_prior": "uniform", "updates_per_optimize": 1, "batch_size": 8, "min_itr_learn": 0,
        "replay_buffer": SimpleNamespace(sample_batch=lambda size: samples), "update_counter": 0,
        "clip_grad_norm": 1e6, "target_update_interval": 1, "target_update_tau": 0.005,
        "discount": 0.99, "n_step_return": 1, "reward_scale": 1, "mid_batch_reset": True,
        "reparameterize": True, "policy_output_regularization": 0.001,
        "initial_optim_state_dict": None, "initial_q1_optim_state_dict": None,
        "initial_q2_optim_state_dict": None, "initial_v_optim_state_dict": None,
    }.items():  # fmt: skip
        setattr(algorithm, name, value)
    algorithm.optim_initialize()

    def step(number):
        info = algorithm.optimize_agent(number)
        return {"loss": info.q1Loss[-1], "used": used["q1"]}

    return model, step


def symptom(bug, fix):
    first, second = bug.values[0]["used"], fix.values[0]["used"]
    return bool((first - second).norm() > 0.1 * second.norm())
