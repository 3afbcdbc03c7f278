"""Training programs in public repositories, with small sizes and random data.

Each entry of ``PROGRAMS`` says which files of which commit are run, and with which arguments; the
files are read from local copies of the repositories, and none of their code is here.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from tests.zoo.program import Program
from tests.zoo.program_stubs import GYM, LABML, NOTHING, TENSORBOARD, TORCHVISION, TYRO

TEXT = "to be or not to be that is the question whether it is nobler in the mind to suffer\n" * 60


def _write(path: str, text: str = TEXT) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def _write_corpus() -> None:
    for name in ("train", "valid", "test"):
        _write(f"data/{name}.txt")


def _write_names() -> None:
    letters = random.Random(0)
    names = ["".join(letters.choices("abcdefghij", k=6)) for _ in range(64)]
    _write("names.txt", "\n".join(names))


def _write_tokens() -> None:
    Path("data/text").mkdir(parents=True)
    tokens = np.arange(2000, dtype=np.uint16) % 97
    for name in ("train", "val"):
        tokens.tofile(f"data/text/{name}.bin")


def _write_waves() -> None:
    times = np.arange(40) + np.arange(8)[:, None]
    torch.save(np.sin(times / 5).astype("float64"), "traindata.pt")
    kinds = [np._core.multiarray._reconstruct, np.ndarray, np.dtype, np.dtypes.Float64DType]
    torch.serialization.add_safe_globals(kinds)


_MINGPT = partial(
    Program, repository="karpathy/minGPT", commit="37baab71b9abea1b76ab957409a1cc2fbfba8a26",
    license="MIT",
)  # fmt: skip
_NANOGPT = partial(
    Program, repository="karpathy/nanoGPT", commit="3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    license="MIT", script="train.py", also=("model.py", "configurator.py"), prepare=_write_tokens,
)  # fmt: skip
_NANOGPT_SIZES = (
    "--dataset=text", "--device=cpu", "--compile=False", "--eval_iters=1", "--n_layer=3",
    "--n_head=2", "--n_embd=32", "--block_size=32", "--batch_size=4",
)  # fmt: skip
_MAKEMORE = partial(
    Program, repository="karpathy/makemore", commit="988aa59e4d8fefa526d06f3b453ad116258398d4",
    license="MIT", script="makemore.py", prepare=_write_names, stubs=TENSORBOARD,
)  # fmt: skip
_MAKEMORE_SIZES = ("--num-workers=0", "--n-layer=2", "--n-embd=32", "--n-embd2=32")
_EXAMPLES = partial(
    Program, repository="pytorch/examples", commit="77f55b912142e11fcfdf5b530231fb9c52f181e8",
    license="BSD-3-Clause", stubs=TORCHVISION,
)  # fmt: skip
_LANGUAGE_MODEL = partial(
    _EXAMPLES, script="word_language_model/main.py",
    also=("word_language_model/model.py", "word_language_model/data.py"), prepare=_write_corpus,
)  # fmt: skip
_LANGUAGE_SIZES = (
    "--data=data", "--emsize=16", "--nhid=16", "--batch_size=4", "--bptt=8", "--epochs=1",
)  # fmt: skip
_CLEANRL = partial(
    Program, repository="vwxyzjn/cleanrl", commit="fe8d8a03c41a7ef5b523e2e354bd01c363e786bb",
    license="MIT", stubs={**TENSORBOARD, **TYRO}, also=("cleanrl_utils/buffers.py",),
)  # fmt: skip
_OFF_POLICY = ("--learning_starts=40", "--batch_size=16", "--buffer_size=200")
_LABML = partial(
    Program, repository="labmlai/annotated_deep_learning_paper_implementations",
    commit="e6b3c8a6a2cdae4071bcde1abeaaf9a2bc37bd53", license="MIT",
)  # fmt: skip
_SB3 = partial(
    Program, repository="DLR-RM/stable-baselines3",
    commit="e05d2dbe6eda0acd0ef2e316e3e4065677add3eb", license="MIT",
    also=("stable_baselines3/", "stable_baselines3/version.txt"),
    stubs={"pandas": NOTHING, "matplotlib": NOTHING, "matplotlib.pyplot": NOTHING,
           "matplotlib.figure": NOTHING},
)  # fmt: skip
_GAN = partial(
    Program, repository="eriklindernoren/PyTorch-GAN",
    commit="36d3c77e5ff20ebe0aeefd322326a134a279b93e", license="MIT", stubs=TORCHVISION,
    arguments=("--batch_size=8", "--img_size=32", "--n_epochs=1"),
)  # fmt: skip
_TUTORIAL = partial(
    Program, repository="yunjey/pytorch-tutorial",
    commit="0500d3df5a2a8080ccfccbc00aca0eacc21818db", license="MIT", stubs=TORCHVISION,
)  # fmt: skip
_MINIMALRL = partial(
    Program, repository="seungeunrho/minimalRL",
    commit="c8efed8481e3cd40e9739cfde220a55522555b57", license="MIT",
    stubs=GYM,
)  # fmt: skip


def _diffusion() -> None:
    from labml_nn.diffusion.ddpm.experiment import Configs

    configs = Configs()
    configs.device, configs.image_size, configs.n_channels = torch.device("cpu"), 16, 32
    configs.channel_multipliers, configs.is_attention = [1, 2], [False, True]
    configs.batch_size, configs.dataset = 2, torch.rand(16, 3, 16, 16)
    configs.init()
    configs.train()


def _attention_over_graph() -> None:
    from labml_nn.graphs.gat.experiment import GAT, Configs

    configs = Configs()
    configs.device, configs.epochs, configs.training_samples = torch.device("cpu"), 4, 10
    configs.dataset = SimpleNamespace(
        features=torch.rand(20, 12), labels=torch.arange(20) % 3,
        adj_mat=torch.rand(20, 20).lt(0.3) | torch.eye(20).bool(),
    )  # fmt: skip
    configs.model = GAT(12, 16, 3, 4, 0.2)
    configs.optimizer = torch.optim.Adam(configs.model.parameters())
    configs.run()


def _gated_units() -> None:
    from labml_nn.transformers.glu_variants import simple

    _write("data/tiny_shakespeare.txt")
    configs = simple.Configs(d_model=32, seq_len=16, batch_size=4, n_layers=2, n_heads=2, d_ff=64)
    simple.Trainer(configs).train()


def _dueling_games() -> None:
    from labml_nn.rl.ppo.experiment import Trainer

    number = lambda value: lambda: value  # noqa: E731
    Trainer(
        updates=1, epochs=number(2), n_workers=2, worker_steps=8, batches=2,
        value_loss_coef=number(0.5), entropy_bonus_coef=number(0.01), clip_range=number(0.1),
        learning_rate=number(1e-3),
    ).run_training_loop()  # fmt: skip


GAMES = """
import numpy as np
class _Game:
    def __init__(self, seed): self.random = np.random.RandomState(seed)
    def send(self, message): pass
    def recv(self):
        observation = self.random.randint(0, 255, (4, 84, 84)).astype("uint8")
        self.recv = lambda: (observation, 1.0, False, None)
        return observation
class Worker:
    def __init__(self, seed): self.child = _Game(seed)
"""


def _stable_baselines(algorithm: str, game: str, **options) -> None:
    import stable_baselines3

    kind = getattr(stable_baselines3, algorithm)
    agent = kind("MlpPolicy", game, seed=0, device="cpu", **options)
    agent.learn(400)


def _simclr() -> None:
    from simclr import SimCLR

    args = SimpleNamespace(
        device="cpu", batch_size=8, n_views=2, temperature=0.07, fp16_precision=False, epochs=1,
        log_every_n_steps=1, disable_cuda=True, arch="small",
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 16),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    views = [([torch.rand(8, 3, 16, 16) for _ in range(2)], None) for _ in range(4)]
    trainer = SimCLR(model=model, optimizer=optimizer, scheduler=scheduler, args=args)
    trainer.train(views)


def _diffusion_1d() -> None:
    from denoising_diffusion_pytorch_1d import Dataset1D, GaussianDiffusion1D, Trainer1D, Unet1D

    model = Unet1D(dim=8, dim_mults=(1, 2), channels=3)
    diffusion = GaussianDiffusion1D(model, seq_length=16, timesteps=10)
    Trainer1D(
        diffusion, dataset=Dataset1D(torch.rand(32, 3, 16)), train_batch_size=4, num_samples=4,
        train_num_steps=4, gradient_accumulate_every=2,
    ).train()  # fmt: skip


def _a2c(algorithm: str, **options) -> None:
    from a2c_ppo_acktr import algo
    from a2c_ppo_acktr.model import Policy
    from a2c_ppo_acktr.storage import RolloutStorage

    space = type("Discrete", (), {"n": 3})()
    policy = Policy((6,), space, base_kwargs={"recurrent": True, "hidden_size": 16})
    agent = getattr(algo, algorithm)(
        policy, value_loss_coef=0.5, entropy_coef=0.01, lr=1e-3, eps=1e-5, max_grad_norm=0.5,
        **options,
    )  # fmt: skip
    rollouts = RolloutStorage(8, 4, (6,), space, policy.recurrent_hidden_state_size)
    for _ in range(4):
        for step in range(8):
            with torch.no_grad():
                value, action, probability, state = policy.act(
                    rollouts.obs[step], rollouts.recurrent_hidden_states[step], rollouts.masks[step]
                )
            alive = torch.ones(4, 1)
            rollouts.insert(
                torch.rand(4, 6), state, action, probability, value, torch.rand(4, 1), alive, alive
            )
        with torch.no_grad():
            last = policy.get_value(
                rollouts.obs[-1], rollouts.recurrent_hidden_states[-1], rollouts.masks[-1]
            )
        rollouts.compute_returns(last, True, 0.99, 0.95, True)
        agent.update(rollouts)
        rollouts.after_update()


PROGRAMS: dict[str, Program] = {
    "mingpt-adder": _MINGPT(
        script="projects/adder/adder.py", also=("mingpt/",), steps=2,
        arguments=("--model.model_type=gpt-nano", "--trainer.num_workers=0",
                   "--trainer.batch_size=4", "--data.ndigit=1"),
    ),
    "mingpt-chargpt": _MINGPT(
        script="projects/chargpt/chargpt.py", also=("mingpt/",), steps=2,
        arguments=("--model.model_type=gpt-nano", "--trainer.num_workers=0",
                   "--trainer.batch_size=4", "--data.block_size=16"),
        prepare=partial(_write, "input.txt", f"O God, O God!\n{TEXT}"),
    ),
    "nanogpt": _NANOGPT(
        arguments=(*_NANOGPT_SIZES, "--dtype=float32", "--gradient_accumulation_steps=2"),
    ),
    "nanogpt-dropout": _NANOGPT(
        arguments=(*_NANOGPT_SIZES, "--dtype=bfloat16", "--gradient_accumulation_steps=1",
                   "--dropout=0.1", "--bias=True"),
    ),
    **{
        f"makemore-{kind}": _MAKEMORE(arguments=(*_MAKEMORE_SIZES, f"--type={kind}"))
        for kind in ("transformer", "gru", "rnn", "bow", "mlp")
    },
    "examples-mnist": _EXAMPLES(script="mnist/main.py", arguments=("--batch-size=8",)),
    "examples-mnist-rnn": _EXAMPLES(script="mnist_rnn/main.py", arguments=("--batch-size=8",)),
    "examples-forward-forward": _EXAMPLES(
        script="mnist_forward_forward/main.py", arguments=("--epochs=2", "--train_size=32"),
    ),
    "examples-siamese": _EXAMPLES(
        script="siamese_network/main.py", arguments=("--batch-size=2",), steps=2,
        stubs={**TORCHVISION, "torchvision.models": "from timm.models import resnet18 as _build\n"
               "import torch\ndef resnet18(weights=None):\n"
               "    model = _build(num_classes=10)\n    return model"},
    ),
    "examples-vae": _EXAMPLES(script="vae/main.py", arguments=("--batch-size=8",)),
    "examples-dcgan": _EXAMPLES(
        script="dcgan/main.py",
        arguments=("--dataset=fake", "--batchSize=8", "--ngf=8", "--ndf=8", "--workers=0"),
    ),
    "examples-lstm": _LANGUAGE_MODEL(arguments=(*_LANGUAGE_SIZES, "--use-optimizer", "--lr=1e-3")),
    "examples-gru": _LANGUAGE_MODEL(
        arguments=(*_LANGUAGE_SIZES, "--model=GRU", "--tied", "--dry-run"),
    ),
    "examples-transformer": _LANGUAGE_MODEL(
        arguments=(*_LANGUAGE_SIZES, "--model=Transformer", "--use-optimizer", "--lr=1e-3"),
    ),
    "examples-regression": _EXAMPLES(script="regression/main.py"),
    "examples-actor-critic": _EXAMPLES(script="reinforcement_learning/actor_critic.py"),
    "examples-reinforce": _EXAMPLES(script="reinforcement_learning/reinforce.py"),
    "examples-sine-waves": _EXAMPLES(
        script="time_sequence_prediction/train.py", arguments=("--steps=1",), steps=1,
        prepare=_write_waves, stubs={"matplotlib": NOTHING, "matplotlib.pyplot": NOTHING},
    ),
    "cleanrl-ppo": _CLEANRL(
        script="cleanrl/ppo.py", steps=8,
        arguments=("--num_steps=8", "--total_timesteps=64", "--update_epochs=2"),
    ),
    "cleanrl-ppo-continuous": _CLEANRL(
        script="cleanrl/ppo_continuous_action.py", steps=8,
        arguments=("--env_id=Pendulum-v1", "--num_steps=32", "--total_timesteps=64",
                   "--num_minibatches=4", "--update_epochs=2"),
    ),
    "cleanrl-dqn": _CLEANRL(
        script="cleanrl/dqn.py", arguments=(*_OFF_POLICY, "--target_network_frequency=20"),
    ),
    "cleanrl-c51": _CLEANRL(
        script="cleanrl/c51.py", arguments=(*_OFF_POLICY, "--target_network_frequency=20"),
    ),
    "cleanrl-sac": _CLEANRL(
        script="cleanrl/sac_continuous_action.py", steps=12,
        arguments=("--env_id=Pendulum-v1", *_OFF_POLICY),
    ),
    "cleanrl-td3": _CLEANRL(
        script="cleanrl/td3_continuous_action.py", steps=6,
        arguments=("--env_id=Pendulum-v1", *_OFF_POLICY),
    ),
    "cleanrl-ddpg": _CLEANRL(
        script="cleanrl/ddpg_continuous_action.py", steps=6,
        arguments=("--env_id=Pendulum-v1", *_OFF_POLICY),
    ),
    "labml-ddpm": _LABML(
        script="labml_nn/diffusion/ddpm/experiment.py", start=_diffusion,
        also=("labml_nn/__init__.py", "labml_nn/helpers/", "labml_nn/diffusion/"),
        stubs={**LABML, **TORCHVISION},
    ),
    "labml-gat": _LABML(
        script="labml_nn/graphs/gat/experiment.py", start=_attention_over_graph,
        also=("labml_nn/__init__.py", "labml_nn/helpers/", "labml_nn/graphs/",
              "labml_nn/optimizers/"),
        stubs=LABML,
    ),
    "labml-glu": _LABML(
        script="labml_nn/transformers/glu_variants/simple.py", start=_gated_units,
        also=("labml_nn/__init__.py", "labml_nn/helpers/", "labml_nn/transformers/",
              "labml_nn/optimizers/", "labml_nn/experiments/", "labml_nn/utils/"),
        stubs={**LABML, **TORCHVISION},
    ),
    "labml-ppo": _LABML(
        script="labml_nn/rl/ppo/experiment.py", start=_dueling_games,
        also=("labml_nn/__init__.py", "labml_nn/rl/__init__.py", "labml_nn/rl/ppo/"),
        stubs={**LABML, "labml_nn.rl.game": GAMES},
    ),
    "sb3-ppo": _SB3(
        script="stable_baselines3/ppo/ppo.py",
        start=partial(_stable_baselines, "PPO", "CartPole-v1", n_steps=32, batch_size=16),
    ),
    "sb3-a2c": _SB3(
        script="stable_baselines3/a2c/a2c.py",
        start=partial(_stable_baselines, "A2C", "Pendulum-v1", n_steps=8),
    ),
    "sb3-dqn": _SB3(
        script="stable_baselines3/dqn/dqn.py",
        start=partial(_stable_baselines, "DQN", "CartPole-v1", learning_starts=40, batch_size=16),
    ),
    "sb3-sac": _SB3(
        script="stable_baselines3/sac/sac.py", steps=9,
        start=partial(_stable_baselines, "SAC", "Pendulum-v1", learning_starts=40, batch_size=16),
    ),
    "sb3-td3": _SB3(
        script="stable_baselines3/td3/td3.py", steps=6,
        start=partial(_stable_baselines, "TD3", "Pendulum-v1", learning_starts=40, batch_size=16),
    ),
    **{
        f"gan-{name}": _GAN(script=f"implementations/{name}/{name}.py")
        for name in ("gan", "dcgan", "wgan_gp", "acgan", "infogan", "aae", "began", "lsgan",
                     "softmax_gan", "relativistic_gan", "cgan", "wgan_div", "sgan")
    },
    "tutorial-logistic-regression": _TUTORIAL(
        script="tutorials/01-basics/logistic_regression/main.py",
    ),
    "tutorial-language-model": _TUTORIAL(
        script="tutorials/02-intermediate/language_model/main.py",
        also=("tutorials/02-intermediate/language_model/data_utils.py",), prepare=_write_corpus,
    ),
    "tutorial-resnet": _TUTORIAL(
        script="tutorials/02-intermediate/deep_residual_network/main.py", steps=1,
    ),
    "tutorial-gan": _TUTORIAL(
        script="tutorials/03-advanced/generative_adversarial_network/main.py",
    ),
    "minimalrl-ppo-lstm": _MINIMALRL(script="ppo-lstm.py"),
    "minimalrl-actor-critic": _MINIMALRL(script="actor_critic.py"),
    "minimalrl-ppo": _MINIMALRL(script="ppo.py"),
    "minimalrl-reinforce": _MINIMALRL(script="REINFORCE.py"),
    "awd-lstm": Program(
        repository="salesforce/awd-lstm-lm", commit="1d466ec5875675ca6b6f0caacbb741240a29da9e",
        license="BSD-3-Clause", script="main.py",
        also=("data.py", "model.py", "utils.py", "embed_regularize.py", "locked_dropout.py",
              "weight_drop.py", "splitcross.py"),
        arguments=("--data=data/", "--emsize=16", "--nhid=16", "--batch_size=4", "--bptt=8",
                   "--cuda", "--epochs=1"),
        prepare=_write_corpus,
    ),
    "simclr": Program(
        repository="sthalles/SimCLR", commit="1848fc934ad844ae630e6c452300433fe99acfd9",
        license="MIT", script="simclr.py", start=_simclr,
        stubs={**TENSORBOARD, "utils": "def save_config_file(*a, **k): pass\n"
               "save_checkpoint = save_config_file\n"
               "def accuracy(*a, **k): return [[0.0], [0.0]]"},
    ),
    "a2c": Program(
        repository="ikostrikov/pytorch-a2c-ppo-acktr-gail",
        commit="41332b78dfb50321c29bade65f9d244387f68a60", license="MIT",
        script="a2c_ppo_acktr/algo/a2c_acktr.py", also=("a2c_ppo_acktr/",),
        start=partial(_a2c, "A2C_ACKTR", alpha=0.99),
        stubs={"h5py": NOTHING, "a2c_ppo_acktr.envs": "class VecNormalize: pass"},
    ),
    "a2c-ppo": Program(
        repository="ikostrikov/pytorch-a2c-ppo-acktr-gail",
        commit="41332b78dfb50321c29bade65f9d244387f68a60", license="MIT",
        script="a2c_ppo_acktr/algo/ppo.py", also=("a2c_ppo_acktr/",),
        start=partial(_a2c, "PPO", clip_param=0.2, ppo_epoch=2, num_mini_batch=2),
        stubs={"h5py": NOTHING, "a2c_ppo_acktr.envs": "class VecNormalize: pass"},
    ),
    "pygcn": Program(
        repository="tkipf/pygcn", commit="1600b5b748b3976413d1e307540ccc62605b4d6d",
        license="MIT", script="pygcn/train.py", also=("pygcn/",),
        stubs={"scipy": "", "scipy.sparse": "", "pygcn.utils": """
import torch
def load_data():
    torch.manual_seed(0)
    links = torch.eye(20) + torch.rand(20, 20).lt(0.2)
    ids = torch.arange(20)
    return links.to_sparse(), torch.rand(20, 12), ids % 3, ids[:10], ids[10:15], ids[15:]
def accuracy(output, labels): return (output.argmax(1) == labels).double().mean()
"""},
    ),
    "diffusion-1d": Program(
        repository="lucidrains/denoising-diffusion-pytorch",
        commit="faed4db28e724735323fa91c70aa9b28a6e1cbac", license="MIT",
        script="denoising_diffusion_pytorch/denoising_diffusion_pytorch_1d.py",
        start=_diffusion_1d,
        stubs={"ema_pytorch": f"{NOTHING}\nclass EMA(_Anything): pass",
               "denoising_diffusion_pytorch": "",
               "denoising_diffusion_pytorch.version": "__version__ = ''"},
    ),
}  # fmt: skip
"""The programs by name."""

EXPLAINED: dict[str, str] = {
    "examples-gru": "The model is another one: the program loads the saved model and evaluates it "
    "without gradients after the training, under the same name.",
}
"""Why findings of programs are true, or where they lead astray."""
