from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo_dice import UserError
from ppo_dice.config import NATURE, SMALLEST_NATURE, Convolutions, PPOConfig
from ppo_dice.images import (
    CNN,
    convolve_by_products,
    convolve_natively,
    image_view,
    init_cnn,
    join_row,
    split_row,
)
from ppo_dice.networks import Encoder, init_encoder
from ppo_dice.types import ImageKind, ObservationKind

KEY = jax.random.key(0)
PAIR = ObservationKind(3, (ImageKind(7, 6, 2), ImageKind(5, 5, 1, highest=1.0)))


def textbook(cnn: CNN, image: np.ndarray) -> jax.Array:
    """The network by XLA's strided convolutions, on the image as it is."""
    x = jnp.asarray(image, jnp.float32)[None] / cnn.view.image.highest
    for kernel, bias, stride in zip(cnn.kernels, cnn.biases, cnn.strides):
        x = jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + bias[None, None, None])
    return jax.nn.relu(cnn.dense @ x.reshape(-1) + cnn.dense_bias)


@pytest.mark.parametrize(
    ("size", "layers", "channels_first"),
    [
        ((11, 9, 3), [(2, 4, 2), (3, 2, 1)], False),  # kernels of whole blocks
        ((12, 10, 2), [(4, 5, 3)], True),  # of parts of blocks: zeros make up for the rest
        ((9, 9, 1), [(2, 2, 3), (2, 3, 1)], False),  # pixels between the kernels' places that nobody sees
    ],
)
def test_the_network_is_the_textbooks(
    size: tuple[int, int, int], layers: list[tuple[int, int, int]], channels_first: bool
) -> None:
    kind = ImageKind(*size, channels_first=channels_first)
    convolutions = Convolutions(*zip(*layers), features=5)
    view = image_view(kind, convolutions)
    cnn = init_cnn(view, convolutions, KEY)
    image = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    raw = np.moveaxis(image, -1, 0) if channels_first else image
    seen = view.cut(jnp.asarray(raw.ravel()))
    assert seen.dtype == np.uint8
    weights = np.arange(1.0, 6.0, dtype=np.float32)

    def value_and_gradient(read: Callable[[CNN], jax.Array]) -> tuple[jax.Array, CNN]:
        return jax.jit(jax.value_and_grad(lambda cnn: weights @ read(cnn)))(cnn)

    ours = value_and_gradient(lambda cnn: cnn(seen[None])[0])
    theirs = value_and_gradient(lambda cnn: textbook(cnn, image))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), ours, theirs)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(ours[1]))


def test_both_kinds_of_convolution_agree() -> None:
    x, kernel = jax.random.normal(KEY, (2, 9, 8, 6)), jax.random.normal(KEY, (3, 3, 6, 4))
    np.testing.assert_allclose(
        convolve_by_products(x, kernel), convolve_natively(x, kernel), rtol=1e-4, atol=1e-5
    )


def test_atari_frames_are_cut_without_gaps() -> None:
    view = image_view(ImageKind(84, 84, 4, channels_first=True), NATURE)
    assert (view.rows, view.columns, view.depth) == (21, 21, 64)
    assert view.size == view.image.size
    cnn = init_cnn(view, NATURE, KEY)
    assert cnn.dense.shape == (512, 3136)


def test_the_kernel_that_does_not_fit_is_named() -> None:
    with pytest.raises(UserError, match=r"Images of 20 × 30 pixels .* layer 3 is 3 wide and meets 1 × 2"):
        image_view(ImageKind(20, 30, 3), NATURE)


def test_nature_fits_from_its_smallest_size_on() -> None:
    smallest = ImageKind(SMALLEST_NATURE, SMALLEST_NATURE, 1)
    assert PPOConfig().convolutions(SMALLEST_NATURE, 80) == NATURE
    image_view(smallest, NATURE)
    less = SMALLEST_NATURE - 1
    with pytest.raises(UserError, match="too small"):
        image_view(ImageKind(less, less, 1), NATURE)
    assert PPOConfig().convolutions(less, 80).kernels == (3,)


def test_settings_override_what_is_usual() -> None:
    config = PPOConfig(cnn_filters=(8, 16), cnn_kernels=(3, 2), cnn_strides=(2, 1), cnn_features=32)
    assert config.convolutions(84, 84) == Convolutions((8, 16), (3, 2), (2, 1), 32)
    assert PPOConfig(cnn_features=64).convolutions(84, 84).filters == NATURE.filters
    with pytest.raises(UserError, match="cnn_kernels must be 2 numbers, as many as cnn_filters"):
        PPOConfig(cnn_filters=(8, 16), cnn_kernels=(3,), cnn_strides=(1, 1))


@given(seed=st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=5)
def test_a_row_of_bytes_comes_apart_and_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    images = [rng.integers(0, 256, size, dtype=np.uint8) for size in (7, 2)]
    numbers = rng.normal(size=3).astype(np.float32)
    row = join_row([jnp.asarray(image) for image in images], jnp.asarray(numbers))
    np.testing.assert_array_equal(row, np.concatenate([*images, numbers.view(np.uint8)]))
    parts, again = split_row(row, [7, 2])
    np.testing.assert_array_equal(again, numbers)
    for part, image in zip(parts, images):
        np.testing.assert_array_equal(part, image)


def encoder_and_rows(n_rows: int) -> tuple[Encoder, jax.Array]:
    encoder = init_encoder(PAIR, PPOConfig(cnn_features=4), KEY)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 2, (n_rows, sum(cnn.view.size for cnn in encoder.cnns)), dtype=np.uint8)
    numbers = rng.normal(size=(n_rows, 3)).astype(np.float32)
    return encoder, jnp.asarray(np.concatenate([pixels, numbers.view(np.uint8)], axis=1))


@pytest.mark.parametrize("n_rows", [3, 16, 37])
def test_an_encoder_gives_features_of_images_and_the_numbers(n_rows: int) -> None:
    encoder, rows = encoder_and_rows(n_rows)
    features = encoder(rows)
    assert features.shape == (n_rows, encoder.n_features) == (n_rows, 4 + 4 + 3)
    np.testing.assert_array_equal(features[:, 8:], jax.vmap(lambda row: split_row(row, [84, 25])[1])(rows))
    by_one = jnp.concatenate([encoder(row[None]) for row in rows[:3]])
    np.testing.assert_allclose(features[:3], by_one, rtol=1e-5, atol=1e-6)
    assert np.ptp(features[:, :8], axis=0).max() > 0


@pytest.mark.parametrize("wanted", [[], [5], [0, 20, 36], range(37)])
def test_features_where_they_are_wanted(wanted: Sequence[int]) -> None:
    encoder, rows = encoder_and_rows(37)
    mask = np.isin(np.arange(37), list(wanted))
    some = jax.jit(lambda mask: encoder.where(mask, rows))(jnp.asarray(mask))
    np.testing.assert_allclose(some[mask], encoder(rows)[mask], rtol=1e-5, atol=1e-6)
    if len(wanted) == 0:
        assert not some.any()
