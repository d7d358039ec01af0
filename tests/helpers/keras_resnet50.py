"""Saves torchvision's ResNet-50 (no convolution bias, stride in the 3x3), written in Keras; run in its environment.

keras.applications has another ResNet-50: biases in every convolution and the stride in the first 1x1.
"""

import sys

import keras
from keras import layers


def unit(x, width, kernel, stride=1, relu=True):
    pad = kernel // 2
    x = layers.ZeroPadding2D(pad)(x) if pad else x
    x = layers.Conv2D(width, kernel, strides=stride, use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if relu else x


def bottleneck(x, width, stride, project):
    skip = unit(x, 4 * width, 1, stride, relu=False) if project else x
    y = unit(unit(unit(x, width, 1), width, 3, stride), 4 * width, 1, relu=False)
    return layers.ReLU()(layers.Add()([y, skip]))


image = keras.Input((224, 224, 3))
x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(unit(image, 64, 7, 2)))
for stage, blocks in enumerate((3, 4, 6, 3)):
    for block in range(blocks):
        x = bottleneck(x, 64 * 2**stage, 2 if stage and not block else 1, project=not block)
x = layers.Dense(1000)(layers.GlobalAveragePooling2D()(x))
keras.Model(image, x).save(sys.argv[1])
