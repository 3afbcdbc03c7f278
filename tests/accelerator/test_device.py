from tests.accelerator.run_on_device import run_on_device


def test_something(tmp_path):
    assert run_on_device("answer((torch.ones(2, device='sim') + 1).tolist())", tmp_path) == [2, 2]
