"""Modules that stand for absent ones in the training programs of the gallery.

Data sets return random images; trackers of experiments and writers of logs do nothing.
"""

from __future__ import annotations

_ANYTHING = """
class _Anything:
    def __init__(self, *a, **k): pass
    def __call__(self, *a, **k): return self
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return self
    def __enter__(self): return self
    def __exit__(self, *a): return None
    def __iter__(self): return iter(())
"""

NOTHING = f"""{_ANYTHING}
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return _Anything()
"""
"""A module whose attributes can be called, entered and read, and do nothing."""

TORCHVISION = {
    "torchvision": "",
    "torchvision.transforms": """
import torch
class _Same:
    def __init__(self, *a, **k): pass
    def __call__(self, image): return image
class ToTensor(_Same): pass
class RandomCrop(_Same): pass
class RandomHorizontalFlip(_Same): pass
class CenterCrop(_Same): pass
class Pad(_Same): pass
class Compose(_Same):
    def __init__(self, transforms): self.transforms = transforms
    def __call__(self, image):
        for each in self.transforms: image = each(image)
        return image
class Lambda(_Same):
    def __init__(self, function): self.function = function
    def __call__(self, image): return self.function(image)
class Normalize(_Same):
    def __init__(self, mean, std): self.mean, self.std = torch.tensor(mean), torch.tensor(std)
    def __call__(self, image):
        return (image - self.mean[:, None, None]) / self.std[:, None, None]
class Resize(_Same):
    def __init__(self, size): self.size = size if isinstance(size, (tuple, list)) else [size] * 2
    def __call__(self, image):
        return torch.nn.functional.interpolate(image[None], tuple(self.size))[0]
""",
    "torchvision.datasets": """
import torch
class _Images(torch.utils.data.Dataset):
    shape = (3, 32, 32)
    def __init__(self, root=None, train=True, transform=None, download=False, **k):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.rand(200, *self.shape, generator=generator)
        self.data = (self.images[:, 0] * 255).to(torch.uint8)
        self.targets = torch.arange(200) % 10
        self.transform = transform
    def __len__(self): return 200
    def __getitem__(self, index):
        image = self.images[index]
        return image if self.transform is None else self.transform(image), int(index) % 10
class MNIST(_Images): shape = (1, 28, 28)
class CIFAR10(_Images): pass
class FakeData(_Images):
    def __init__(self, image_size, transform):
        self.shape = image_size
        super().__init__(transform=transform)
""",
    "torchvision.utils": "def save_image(*a, **k): pass\nmake_grid = save_image",
    "torchvision.models": "def resnet18(*a, **k): raise NotImplementedError",
}

TENSORBOARD = {
    "torch.utils.tensorboard": f"{_ANYTHING}\nclass SummaryWriter(_Anything): log_dir = '.'",
}

TYRO = {
    "tyro": """
import ast, sys
def cli(options):
    found = options()
    for each in sys.argv[1:]:
        name, _, text = each[2:].partition("=")
        assert hasattr(found, name), name
        setattr(found, name, text if name == "env_id" else ast.literal_eval(text))
    return found
""",
}

GYM = {
    "gym": """
import gymnasium
def make(name):
    game = gymnasium.make(name)
    game.reset(seed=0)
    return game
""",
}

LABML = {
    "labml": "",
    "labml.configs": """
class _Options(type):  # class attributes that are only declared stand for options
    def __getattr__(self, name):
        if any(name in vars(each).get("__annotations__", ()) for each in self.__mro__): return None
        raise AttributeError(name)
class BaseConfigs(metaclass=_Options):
    def __init__(self, **k): pass
    @classmethod
    def calc(cls, *a, **k): return lambda function: function
    @classmethod
    def aggregate(cls, *a, **k): pass
class FloatDynamicHyperParam: pass
IntDynamicHyperParam = FloatDynamicHyperParam
def option(*a, **k): return lambda function: function
def calculate(*a, **k): pass
aggregate = hyperparams = meta_config = calculate
""",
    "labml.monit": """
import contextlib
def iterate(name, values): return iter(range(values) if isinstance(values, int) else values)
def enum(name, values): return enumerate(values)
def loop(count): return range(count)
def section(*a, **k): return contextlib.nullcontext()
""",
    "labml.lab": "import pathlib\ndef get_data_path(): return pathlib.Path('data')",
    "labml.tracker": NOTHING,
    "labml.experiment": NOTHING,
    "labml.logger": NOTHING,
    "labml.utils": "",
    "labml.utils.download": "def download_file(*a): pass\nextract_tar = download_file",
    "labml.internal": "",
    "labml.internal.monitor": "class Loop: pass",
}
