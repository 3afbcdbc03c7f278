"""The recipes for the Trainer of transformers and for accelerate."""

import subprocess
import sys

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import autogradviz


def trainer(folder, *, model):
    tokens = torch.arange(16) % 7
    data = [{"input_ids": tokens, "labels": tokens} for _ in range(4)]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=2, per_device_train_batch_size=2, report_to=[],
        use_cpu=True, save_strategy="no", disable_tqdm=True, logging_strategy="no",
        remove_unused_columns=False,
    )  # fmt: skip
    return Trainer(model=model, args=arguments, train_dataset=data)


class Doubling(GPT2LMHeadModel):
    """A model that writes a tensor that backward needs."""

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        scale = out.loss.exp()
        loss = scale * scale
        scale.mul_(2)
        out.loss = loss
        return out


def gpt(kind):
    torch.manual_seed(0)
    return kind(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=7, n_positions=16))


def test_recording_trainer_train_names_the_line(tmp_path):
    model = gpt(Doubling)
    path = tmp_path / "crash.agv"
    with pytest.raises(RuntimeError) as raised:
        with autogradviz.record(model, keep_steps=3, path=path):
            trainer(tmp_path, model=model).train()
    note = raised.value.__notes__[0]
    sys.stdout.write(f"{note}\n")
    assert "scale.mul_(2)" in note
    assert autogradviz.load(path).diagnose()[0].slug == "saved-tensor-mutated"


def test_recording_trainer_train_changes_no_weight(tmp_path):
    plain, recorded = gpt(GPT2LMHeadModel), gpt(GPT2LMHeadModel)
    trainer(tmp_path, model=plain).train()
    with autogradviz.record(recorded, keep_steps=3) as trace:
        trainer(tmp_path, model=recorded).train()
    for one, other in zip(plain.parameters(), recorded.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [each for each in trace.diagnose() if each.confidence != "hint"] == []


def test_accelerate_launch_records_a_script(tmp_path):
    (tmp_path / "train.py").write_text(
        """
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(3, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
hidden = model(torch.ones(2, 3)).exp()
loss = hidden.sum()
hidden.mul_(2)
accelerator.backward(loss)
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes=1",
               "-m", "autogradviz", "run", "train.py"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    sys.stdout.write(f"{done.stderr}\n")
    assert done.returncode != 0
    assert "hidden.mul_(2)" in done.stderr
    assert "autogradviz html train.agv" in done.stderr
    assert (tmp_path / "train.agv").exists()
