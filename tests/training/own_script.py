"""A script of a user's own: `python own_script.py RUN_FOLDER [NUMBER_OF_DEVICES]`."""

import sys

import keras
import tensorflow as tf

import zoo.training
from zoo.data.images import digits

folder, devices = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
run = zoo.training.Run(out=folder, devices=devices, resume=True, checkpoint_steps=5)
train, test = (
    tf.data.Dataset.from_tensor_slices(
        (images.pixels / 255, {"digit": images.labels, "pixels": images.pixels / 255})
    )
    for images in digits()[:2]
)
with run.scope():
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(8, 3, kernel_regularizer="l2")(inputs)
    x = keras.layers.BatchNormalization(synchronized=True)(x)
    x = keras.layers.Lambda(lambda x: keras.ops.relu(x), output_shape=(6, 6, 8))(x)
    pixels = keras.layers.Conv2DTranspose(1, 3, name="pixels")(x)
    digit = keras.layers.Dense(10, name="digit")(keras.layers.Flatten()(x))
    model = keras.Model(inputs, {"digit": digit, "pixels": pixels})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", {"digit": loss, "pixels": "mse"}, metrics={"digit": "accuracy"})
run.train(model, train.shuffle(2000).batch(64), epochs=3, validation_data=test.batch(50))
