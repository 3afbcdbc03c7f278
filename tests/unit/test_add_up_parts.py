"""Parts of a tensor that make up the whole, and parts that do not."""

import pytest

from autogradviz.distributed_runs.values_contradicting_placements import Content, compare_parts


def content(values, *, placements=(), mesh_shape=(), dtype="float32"):
    norm = sum(each * each for each in values) ** 0.5
    return Content(sum(values), norm, (len(values),), dtype, placements, mesh_shape)


WHOLE = content([1.0, -2.0, 3.0, 4.0])
SHARD = {"placements": ("Shard(dim=0)",), "mesh_shape": (2,)}


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([[1, -2, 3, 4]] * 2, "equal"),  # copies
        ([[1, -2, 3, 4.1]] * 2, "differs"),
        ([[1, -2], [3, 4]], "equal"),  # divided
        ([[1, -2], [4, 4]], "differs"),
        ([[1, 2], [3, 4]], "differs"),  # the sign
        ([[1, -2], [3, 4], [1, -2], [3, 4]], "equal"),  # divided, and copied
        ([[1, 0, 1, 4], [0, -2, 2, 0]], "equal"),  # terms of a sum
        ([[2, 0, 2, 8], [0, -4, 4, 0]], "equal"),  # of a mean
        ([[1, 0, 1, 4], [0, -2, 5, 0]], "differs"),
        ([[1, -2], [3]], "unknown"),
    ],
)
def test_parts_of_a_tensor(parts, verdict):
    found, _ = compare_parts(WHOLE, [content(each) for each in parts])
    assert found == verdict


def test_terms_are_no_copies_of_a_tensor_that_is_not_linear():
    parts = [content([1, 0, 1, 4]), content([0, -2, 2, 0])]
    assert compare_parts(WHOLE, parts, is_linear=False)[0] == "differs"


def test_counts_of_the_ranks_add_up():
    parts = [content([24.0]), content([24.0])]
    assert compare_parts(content([48.0]), parts, is_linear=False)[0] == "equal"
    assert compare_parts(content([40.0]), parts, is_linear=False)[0] == "differs"


def test_placements_of_distributed_tensors():
    halves = [content([1, -2], **SHARD), content([3, 4], **SHARD)]
    assert compare_parts(WHOLE, halves)[0] == "equal"
    partial = {"placements": ("Partial(sum)",), "mesh_shape": (2,)}
    terms = [content([1, 0, 1, 4], **partial), content([0, -2, 2, 0], **partial)]
    assert compare_parts(WHOLE, terms)[0] == "equal"
    assert compare_parts(WHOLE, [terms[0], terms[0]])[0] == "differs"
    largest = [each._replace(placements=("Partial(max)",)) for each in terms]
    assert compare_parts(WHOLE, largest)[0] == "unknown"


def test_gradients_of_means_may_be_larger_by_the_number_of_parts():
    parts = [content([2, -4]), content([6, 8])]
    assert compare_parts(WHOLE, parts, factors=(1.0, 2.0))[0] == "equal"
    assert compare_parts(WHOLE, parts)[0] == "differs"


def test_noise_is_not_compared_and_nan_is():
    tiny = content([1e-9, 1e-9, 1e-9, 1e-9])
    other = content([3e-9, 1e-9, 1e-9, -1e-9])
    assert compare_parts(tiny, [other, other])[0] == "differs"
    assert compare_parts(tiny, [other, other], noise=1e-7)[0] == "equal"
    bad = WHOLE._replace(norm=None, entry_sum=None)
    assert compare_parts(WHOLE, [WHOLE, bad]) == ("differs", "NaN or infinite on rank 1")
    assert compare_parts(bad, [WHOLE, WHOLE])[0] == "unknown"


def test_tolerance_is_wider_for_half_precision():
    parts = [content([1, -2, 3, 4.05])] * 2
    assert compare_parts(WHOLE, parts)[0] == "differs"
    half = [each._replace(dtype="bfloat16") for each in parts]
    assert compare_parts(WHOLE, half)[0] == "equal"
    assert compare_parts(WHOLE, parts, tolerance=0.05)[0] == "equal"
