"""Images: how a network sees them, and the convolutional network that reads them.

A convolution of stride s is one of stride 1 over blocks of s × s pixels. So an image is cut into the blocks
of the first layer once per iteration, while it is still bytes, and a convolution is a sum of matrix products
over shifted slices. On a CPU inside a loop that was fifty times as fast as XLA's own convolution; other
devices use that.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped, UInt8

from ppo_dice.config import Convolutions
from ppo_dice.errors import UserError
from ppo_dice.types import ImageKind, Key

GAIN = float(2**0.5)
ROWS_AT_ONCE = 16
"""Images that go through a network together: few enough for a core's cache."""


class _Layer(NamedTuple):
    filters: int
    kernel: int
    stride: int

    @property
    def reach(self) -> int:
        """Width of the kernel in blocks."""
        return -(-self.kernel // self.stride)

    def places(self, width: int) -> int:
        """Places at which the kernel fits."""
        return (width - self.kernel) // self.stride + 1

    def blocks(self, width: int) -> int:
        """Blocks of pixels that these places see."""
        return self.places(width) - 1 + self.reach


@dataclass(frozen=True)
class ImageView:
    """How a network sees an image: cut into the blocks of its first layer."""

    image: ImageKind
    block: int
    rows: int
    columns: int

    @property
    def depth(self) -> int:
        """Values of a block."""
        return self.block**2 * self.image.channels

    @property
    def size(self) -> int:
        """Bytes of the image as the network sees it."""
        return self.rows * self.columns * self.depth

    def cut(self, pixels: UInt8[Array, " P"]) -> UInt8[Array, " V"]:
        """The image as it comes from the environment → its blocks, each with its channels last."""
        kind = self.image
        if kind.channels_first:
            image = jnp.moveaxis(pixels.reshape(kind.channels, kind.height, kind.width), 0, -1)
        else:
            image = pixels.reshape(kind.height, kind.width, kind.channels)
        return _blocks(image[None], self.block, self.rows, self.columns).reshape(-1)


class CNN(eqx.Module):
    """Convolutions with a ReLU after each, and a fully connected layer with a ReLU."""

    kernels: tuple[Float[Array, "_ _ _ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    dense: Float[Array, "F P"]
    dense_bias: Float[Array, " F"]
    strides: tuple[int, ...] = eqx.field(static=True)
    view: ImageView = eqx.field(static=True)

    @property
    def n_features(self) -> int:
        """Length of what comes out."""
        return int(self.dense.shape[0])

    def __call__(self, pixels: UInt8[Array, "B V"]) -> Float[Array, "B F"]:
        """The features of every image."""
        maps = in_small_batches(self._convolutions(), pixels)
        return jax.nn.relu(product(maps, self.dense) + self.dense_bias[None])

    def _convolutions(self) -> Callable[[UInt8[Array, "M V"]], Float[Array, "M P"]]:
        """The convolutional layers; what depends on the weights alone is done before."""
        layers = [_Layer(k.shape[3], k.shape[0], stride) for k, stride in zip(self.kernels, self.strides)]
        kernels = [_kernel_over_blocks(k, layer) for k, layer in zip(self.kernels, layers)]
        kernels[0] = kernels[0] / self.view.image.highest  # the pixels stay whole numbers
        view = self.view

        def convolve(pixels: UInt8[Array, "M V"]) -> Float[Array, "M P"]:
            height, width = view.image.height, view.image.width
            x = pixels.reshape(-1, view.rows, view.columns, view.depth).astype(jnp.float32)
            for number, (layer, kernel, bias) in enumerate(zip(layers, kernels, self.biases)):
                if number > 0:
                    x = _blocks(x, layer.stride, layer.blocks(height), layer.blocks(width))
                x = jax.nn.relu(_convolve(x, kernel) + bias[None, None, None])
                height, width = layer.places(height), layer.places(width)
            return x.reshape(len(pixels), -1)

        return convolve


def image_view(image: ImageKind, convolutions: Convolutions) -> ImageView:
    """How a network with these convolutions sees the image; a `UserError` where a kernel does not fit."""
    layers = _layers(convolutions)
    height, width = image.height, image.width
    for number, layer in enumerate(layers, 1):
        if min(height, width) < layer.kernel:
            raise UserError(
                f"Images of {image.height} × {image.width} pixels are too small for the convolutions: the "
                f"kernel of layer {number} is {layer.kernel} wide and meets {height} × {width}; "
                "choose smaller cnn_kernels or cnn_strides, or fewer layers."
            )
        height, width = layer.places(height), layer.places(width)
    first = layers[0]
    return ImageView(image, first.stride, first.blocks(image.height), first.blocks(image.width))


def init_cnn(view: ImageView, convolutions: Convolutions, key: Key) -> CNN:
    """Orthogonal weights with gain √2, biases of zero."""
    layers = _layers(convolutions)
    *conv_keys, dense_key = jax.random.split(key, len(layers) + 1)
    kernels, inputs = [], view.image.channels
    height, width = view.image.height, view.image.width
    for layer, conv_key in zip(layers, conv_keys):
        flat = _orthogonal((layer.filters, layer.kernel**2 * inputs), conv_key)
        kernels.append(flat.T.reshape(layer.kernel, layer.kernel, inputs, layer.filters))
        inputs, height, width = layer.filters, layer.places(height), layer.places(width)
    return CNN(
        tuple(kernels),
        tuple(jnp.zeros(layer.filters, jnp.float32) for layer in layers),
        _orthogonal((convolutions.features, height * width * inputs), dense_key),
        jnp.zeros(convolutions.features, jnp.float32),
        tuple(layer.stride for layer in layers),
        view,
    )


def split_row(row: UInt8[Array, "*B L"], sizes: Sequence[int]) -> tuple[list[Array], Float[Array, "*B N"]]:
    """The bytes of images of these sizes, and the numbers behind them; of one row or of many."""
    ends = list(itertools.accumulate(sizes))
    images = [row[..., end - size : end] for size, end in zip(sizes, ends)]
    numbers = row[..., ends[-1] :].reshape(*row.shape[:-1], -1, 4)
    return images, jax.lax.bitcast_convert_type(numbers, jnp.float32)


def join_row(images: Sequence[UInt8[Array, " _"]], numbers: Float[Array, " N"]) -> UInt8[Array, " L"]:
    """The opposite of `split_row`, for one row."""
    return jnp.concatenate([*images, jax.lax.bitcast_convert_type(numbers, jnp.uint8).reshape(-1)])


def in_small_batches(function: Callable[[Any], Any], rows: Shaped[Array, "B V"]) -> Float[Array, "B F"]:
    """`function` of all rows, on a CPU a few at a time: what they need fits into a core's cache."""
    whole = len(rows) // ROWS_AT_ONCE * ROWS_AT_ONCE
    if len(rows) <= ROWS_AT_ONCE or jax.default_backend() != "cpu":
        return function(rows)
    batches = jax.lax.map(function, rows[:whole].reshape(-1, ROWS_AT_ONCE, rows.shape[1]))
    done = batches.reshape(whole, -1)
    return done if whole == len(rows) else jnp.concatenate([done, function(rows[whole:])])


@jax.custom_vjp
def product(x: Float[Array, "M I"], weight: Float[Array, "O I"]) -> Float[Array, "M O"]:
    """x Wᵀ, with a gradient that is quick on a CPU.

    ∂/∂W = slopeᵀ x, with the transpose taken for itself: read by columns within the product it took three
    times as long.
    """
    return x @ weight.T


def _product_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight.T, (x, weight)


def _product_backward(saved: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, weight = saved
    return slope @ weight, jax.lax.optimization_barrier(slope.T) @ x


product.defvjp(_product_forward, _product_backward)


def _layers(convolutions: Convolutions) -> list[_Layer]:
    return [
        _Layer(*numbers)
        for numbers in zip(convolutions.filters, convolutions.kernels, convolutions.strides, strict=True)
    ]


def _blocks(
    images: Shaped[Array, "M H W C"], block: int, rows: int, columns: int
) -> Shaped[Array, "M R Q D"]:
    """Cut or pad to rows × columns blocks, and put the values of each block in a row."""
    images = images[:, : rows * block, : columns * block]
    count, height, width, channels = images.shape
    missing = (rows * block - height, columns * block - width)
    if any(missing):  # a kernel that is no multiple of its stride has zeros there
        images = jnp.pad(images, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)))
    split = images.reshape(count, rows, block, columns, block, channels)
    return split.transpose(0, 1, 3, 2, 4, 5).reshape(count, rows, columns, block * block * channels)


def _kernel_over_blocks(kernel: Float[Array, "K K I O"], layer: _Layer) -> Float[Array, "R R D O"]:
    """The same kernel for a convolution of stride 1 over blocks."""
    reach, stride = layer.reach, layer.stride
    missing = reach * stride - layer.kernel
    padded = jnp.pad(kernel, ((0, missing), (0, missing), (0, 0), (0, 0)))
    split = padded.reshape(reach, stride, reach, stride, *kernel.shape[2:])
    return split.transpose(0, 2, 1, 3, 4, 5).reshape(reach, reach, -1, kernel.shape[3])


def _convolve(x: Float[Array, "M R Q D"], kernel: Float[Array, "K K D O"]) -> Float[Array, "M r q O"]:
    """A convolution of stride 1 without padding, by whatever is quick on the device."""
    return jax.lax.platform_dependent(x, kernel, cpu=convolve_by_products, default=convolve_natively)


def convolve_by_products(
    x: Float[Array, "M R Q D"], kernel: Float[Array, "K K D O"]
) -> Float[Array, "M r q O"]:
    """Slices that are shifted along the columns side by side, times the rows of the kernel in turn."""
    reach, _, _, filters = kernel.shape
    rows, columns = x.shape[1] - reach + 1, x.shape[2] - reach + 1
    side_by_side = jnp.concatenate([x[:, :, shift : shift + columns] for shift in range(reach)], axis=-1)
    depth = side_by_side.shape[-1]
    by_row = kernel.reshape(reach, depth, filters).transpose(0, 2, 1)
    flat = functools.reduce(
        jnp.add,
        (
            product(side_by_side[:, shift : shift + rows].reshape(-1, depth), by_row[shift])
            for shift in range(reach)
        ),
    )
    return flat.reshape(len(x), rows, columns, filters)


def convolve_natively(x: Float[Array, "M R Q D"], kernel: Float[Array, "K K D O"]) -> Float[Array, "M r q O"]:
    """XLA's own convolution."""
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _orthogonal(shape: Sequence[int], key: Key) -> Float[Array, "O I"]:
    return jax.nn.initializers.orthogonal(GAIN)(key, tuple(shape), jnp.float32)
