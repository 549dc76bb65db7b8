"""Training on one device, on all of a machine or on many machines, with the same results."""

import keras
import numpy as np
import tensorflow as tf

from zoo.training import distribution
from zoo.training.model_state import random_states

KERAS = "3.15."  # whose private parts are replaced here


class Trainer(keras.Model):
    """Trains a model by `fit`; what comes out does not depend on the number of replicas.

    Keras's own step, under a strategy, clips gradients before they are added up, averages token
    losses for each replica on its own, and lets an overflow of 16 bits on one replica ruin all;
    with several workers, gradient accumulation or XLA it fails.

    A step of `fit` is one update of the weights. It takes a batch (inputs, labels, weights), or a
    tuple of batches whose gradients are added up. What is minimised is the sum of the losses of all
    items times their weights: to make it the mean, let the weights of an update sum to one. The
    reported loss is the mean over the steps of that sum.

    Args:
        model: a built `keras.Model`, made within the scope of the strategy, as the trainer is.

    Raises:
        ValueError: if the model is not built or was made under another strategy.
        RuntimeError: with another version of Keras than this was written for.
    """

    def __init__(self, model, **kwargs):
        if not keras.__version__.startswith(KERAS):
            raise RuntimeError(f"Trainer needs Keras {KERAS}*. Installed: {keras.__version__}.")
        super().__init__(dtype=model.dtype_policy, **kwargs)
        if not model.built:
            raise ValueError(f"{model.name} must be built before it is trained.")
        if model.distribute_strategy is not self.distribute_strategy:
            raise ValueError(f"{model.name} was made under another strategy than its trainer.")
        self.model = model
        self.built = True
        for variable in random_states(model):
            distribution.set_random_state(variable, variable.numpy(), self.distribute_strategy)

    def trained_model(self):
        """The model with its weights, on one device: what is saved and used."""
        if self._distribute_strategy is None:
            return self.model
        copy = keras.saving.deserialize_keras_object(
            keras.saving.serialize_keras_object(self.model)
        )
        copy.set_weights(self.model.get_weights())
        return copy

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def compile(self, optimizer, loss, weighted_metrics=(), jit_compile="auto"):
        """Says how to train; within the scope of the strategy.

        Args:
            optimizer: `keras.optimizers.Optimizer`.
            loss: `keras.losses.Loss` with ``reduction="sum"``.
            weighted_metrics: `keras.metrics.Metric`s.
            jit_compile: whether XLA compiles the forward and backward pass; "auto" does on GPUs.

        Raises:
            ValueError: if the loss is reduced otherwise, or the optimizer accumulates gradients.
        """
        if getattr(loss, "reduction", None) != "sum":
            raise ValueError(f'The loss must be a Loss with reduction="sum". Received: {loss}.')
        if getattr(optimizer, "gradient_accumulation_steps", None):
            raise ValueError("To accumulate gradients, train on tuples of batches.")
        super().compile(optimizer, loss, weighted_metrics=list(weighted_metrics), jit_compile=False)
        self.optimizer.build(self.trainable_variables)
        # `train_step` has added up the gradients of all replicas when the optimizer gets them.
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        inner._all_reduce_sum_gradients = list
        if jit_compile == "auto":
            jit_compile = bool(tf.config.list_logical_devices("GPU"))
        self._gradients = tf.function(
            self._forward_and_backward, jit_compile=jit_compile, reduce_retracing=True
        )

    def fit(self, batches, validation_data=None, verbose="auto", **settings):
        """`keras.Model.fit` on data sets of batches; only the chief reports.

        Args:
            batches: `tf.data.Dataset` without end of batches, or of tuples of batches.
            validation_data: `tf.data.Dataset` of batches, of known length.
            verbose: as in Keras.
            **settings: `epochs`, `steps_per_epoch` and others, as in Keras.

        Returns:
            `keras.callbacks.History`.
        """
        strategy = self.distribute_strategy
        workers, replicas = distribution.num_workers(strategy), strategy.num_replicas_in_sync
        if not distribution.is_chief(strategy):
            verbose = 0
        if verbose and replicas > 1:
            print(f"Training on {replicas} devices, {replicas // workers} of each worker")
        if workers > 1:
            distribution.check_agreement(strategy, self._fingerprint(batches))
        if validation_data is not None:
            settings["validation_steps"] = len(validation_data)
            validation_data = distribution.distribute(validation_data, strategy)
        return super().fit(
            distribution.distribute(batches, strategy),
            validation_data=validation_data,
            verbose=verbose,
            shuffle=False,  # the batches come in their order
            **settings,
        )

    def evaluate(self, batches=None, steps=None, **settings):
        """`keras.Model.evaluate` on a data set of batches, of known length."""
        batches = settings.pop("x", batches)  # as `fit` calls it
        steps = len(batches) if steps is None else steps
        batches = distribution.distribute(batches, self.distribute_strategy)
        return super().evaluate(batches, steps=steps, **settings)

    def predict(self, *args, **kwargs):
        """`predict` of the trained model, on one device."""
        return self.trained_model().predict(*args, **kwargs)

    def save(self, *args, **kwargs):
        """`save` of the trained model: what is loaded is the model and no trainer."""
        return self.trained_model().save(*args, **kwargs)

    def train_on_batch(self, *args, **kwargs):
        # Keras's would train every replica on the whole batch, and count it as often.
        raise NotImplementedError("Trainer trains by `fit`, on data sets of batches.")

    def test_on_batch(self, *args, **kwargs):
        raise NotImplementedError("Trainer tests by `evaluate`, on data sets of batches.")

    def train_step(self, data):
        replicas = self.distribute_strategy.num_replicas_in_sync
        total, gradients = 0.0, None
        for batch in data if isinstance(data[0], tuple) else (data,):
            loss, outputs, new = self._gradients(*_checked(batch))
            total += loss
            gradients = new if gradients is None else [a + b for a, b in zip(gradients, new)]
            self._update_metrics(batch, outputs)
        gradients = distribution.sum_over_replicas(gradients)
        self.optimizer.apply(gradients, self.trainable_variables)
        self._loss_tracker.update_state(total * replicas, sample_weight=1.0 / replicas)
        return self._logs()

    def test_step(self, data):
        inputs, labels, weights = _checked(data)
        replicas = self.distribute_strategy.num_replicas_in_sync
        outputs = self(inputs, training=False)
        loss = self.compute_loss(inputs, labels, outputs, weights, training=False)
        self._update_metrics(data, outputs)
        self._loss_tracker.update_state(loss * replicas, sample_weight=1.0 / replicas)
        return self._logs()

    def _fingerprint(self, batches):
        """Numbers that tell states and data apart."""

        def size(tensors):
            return sum(np.abs(np.asarray(t, np.float64)).sum() for t in tensors)

        first = tf.nest.flatten(next(iter(batches)))
        return {
            "the steps done": self.optimizer.iterations.numpy(),
            "the weights": size(w.numpy() for w in self.trainable_variables),
            "the shapes of the first batch": size(t.shape for t in first),
            "the first batch": size(t.numpy() for t in first),
        }

    def _forward_and_backward(self, inputs, labels, weights):
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            loss = self.compute_loss(inputs, labels, outputs, weights, training=True)
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        # Rows of an embedding, in which a token stands as often as it occurs, become a matrix.
        return loss, outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _update_metrics(self, batch, outputs):
        _, labels, weights = batch
        if self._compile_metrics is not None:
            self._compile_metrics.update_state(labels, outputs, weights)

    def _logs(self):
        logs = self.get_metrics_result()
        if distribution.num_workers(self.distribute_strategy) > 1:
            # Keras takes the mean over the first axis of what the workers return.
            logs = {name: tf.reshape(value, [1]) for name, value in logs.items()}
        return logs

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Keras would average the first batch over the replicas, which fails if they differ in rows
        # or are of several workers. There is nothing to build: `compile` has done it.
        pass


def _checked(batch):
    if len(batch) != 3:
        raise ValueError("A batch must be (inputs, labels, weights), and the weights be given.")
    return batch
