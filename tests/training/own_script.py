"""A script of a user's own: `python own_script.py RUN_FOLDER [NUMBER_OF_DEVICES]`."""

import sys

import keras
import tensorflow as tf

import zoo.training
from zoo.data.images import digits

folder, devices = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
run = zoo.training.Run(out=folder, devices=devices, resume=True, checkpoint_steps=5)
train, test = (
    tf.data.Dataset.from_tensor_slices((images.pixels / 255, images.labels))
    for images in digits()[:2]
)
with run.scope():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, kernel_regularizer="l2"),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Lambda(lambda x: keras.ops.relu(x), output_shape=(6, 6, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
run.train(model, train.shuffle(2000).batch(64), epochs=3, validation_data=test.batch(50))
