"""Training on one device, several devices or several machines, with the same results."""

import functools

import keras
import tensorflow as tf

from zoo import compat
from zoo.data.worker_batches import in_parts
from zoo.errors import UserError
from zoo.hardware import has_gpu
from zoo.models.base import TransformerModel, blocks_called_by
from zoo.models.copying import copy_model
from zoo.training import distribution
from zoo.training.compiled_blocks import CompiledBlocks
from zoo.training.share_losses import ShareLoss, common_reduction, loss_weights
from zoo.training.state_file import random_states
from zoo.training.step import global_norm, loss_and_gradients, training_step, validation_step

# Why not `keras.Model.fit`: under a strategy, Keras's training step clips gradients before they are
# summed, averages token losses on each replica separately, and lets a float16 overflow on one
# replica corrupt the weights of all. With several workers, it fails with gradient accumulation or
# XLA.

_ROWS_TO_BUILD = 7  # batch size by which `ShareLoss` tells values of rows from others
_REQUESTED = -1.0  # value of `gradient_norm` that requests its measurement


class Trainer(compat.TrainingModel):
    """Trains a model with `fit`; the result does not depend on the number of replicas.

    The loss of a batch (inputs, labels, weights) is that of Keras, also if it is divided between
    replicas or into parts, with the reductions "sum_over_batch_size", "sum" or
    "mean_with_sample_weight"; see `zoo.data.worker_batches`. As in Keras, the reported loss of an
    epoch is the mean of the losses of its batches, weighted by their numbers of rows. With
    "mean_with_sample_weight", they are weighted by their total weights, which gives the weighted
    mean over all items.

    Args:
        model: a built `keras.Model`. Create the model and the trainer within the strategy's scope.
        preprocess: function of the inputs of a batch that is computed on the device before the
            model, such as a normalization, so that images are transferred as integers.

    Attributes:
        gradient_norm: float32 scalar `tf.Variable`, the global norm of the gradients of an update
            before clipping, the last that was measured; see `measure_gradient_norm`.

    Raises:
        ValueError: if the model is not built or was created under another strategy.
    """

    def __init__(self, model, preprocess=None, **kwargs):
        super().__init__(dtype=model.dtype_policy, **kwargs)
        if not model.built:
            raise ValueError(
                f"The model {model.name} must be built before it is trained: begin it with "
                "keras.Input, or call it on some inputs before it is compiled."
            )
        if model.distribute_strategy is not self.distribute_strategy:
            raise ValueError(
                f"The model {model.name} must be created under the same strategy as its Trainer."
            )
        self.model = model
        if hasattr(model, "output_names"):  # Keras names losses and metrics by them
            self.output_names = model.output_names
        self._has_strategy = tf.distribute.has_strategy()  # it may have one device
        self.preprocess = preprocess
        self.gradient_norm = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self._has_blocks = any(
            isinstance(layer, TransformerModel) for layer in compat.all_layers(model)
        )
        self._compiled_blocks = None
        self.built = True
        for variable in random_states(model):
            distribution.set_random_state(variable, variable.numpy(), self.distribute_strategy)

    def trained_model(self):
        """Returns the model on one device, with LoRA merged, for saving and inference.

        On several devices or with LoRA, it is a copy that is not compiled.
        """
        layers = compat.all_layers(self.model)
        if self._has_strategy or any(getattr(one, "lora_enabled", False) for one in layers):
            return copy_model(self.model)
        return self.model

    def call(self, inputs, training=None):
        if self.preprocess is not None:
            inputs = self.preprocess(inputs)
        with blocks_called_by(self._compiled_blocks):
            return self.model(inputs, training=training)

    def compile(
        self,
        optimizer,
        loss,
        loss_weights=None,
        metrics=(),
        weighted_metrics=(),
        *,
        jit_compile="auto",
        auto_scale_loss=True,
    ):
        """Configures training; call it within the strategy's scope.

        Args:
            optimizer: `keras.optimizers.Optimizer`.
            loss: a loss, or one for each output, as in Keras, all with the same reduction.
            loss_weights, metrics, weighted_metrics, auto_scale_loss: as in Keras.
            jit_compile: whether to compile with XLA. Of models of `zoo.models`, each kind of block
                is compiled once, and on one device the update of the weights. Of others, it is on
                one device the whole step, or the forward and backward pass if there are several
                devices, or the device also augments the images or computes the logits of a teacher.
                "auto" compiles on GPUs, other models only if all batches have the same shape but
                for the number of rows: that takes seconds to minutes for each shape.

        Raises:
            UserError: if the losses have different reductions, or the optimizer overwrites weights
                by their averages on several devices.
            ValueError: if the optimizer accumulates gradients.
        """
        self._reduction = common_reduction(loss)
        optimizer = keras.optimizers.get(optimizer)  # it may be a name
        inner_optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        if inner_optimizer.gradient_accumulation_steps:
            raise ValueError(
                "Trainer does not support gradient_accumulation_steps. Train on larger batches and "
                "pass accumulation, the number of parts in which each is computed."
            )
        if self._num_replicas > 1 and inner_optimizer.ema_overwrite_frequency:
            raise UserError("On several devices, ema_overwrite_frequency is not supported.")
        self.parts_per_share = 1
        self._on_device = None
        self._share_losses = []
        super().compile(
            optimizer,
            loss,
            loss_weights=loss_weights,
            metrics=metrics or None,
            weighted_metrics=weighted_metrics or None,
            jit_compile=False,
            auto_scale_loss=auto_scale_loss,
        )
        self.wrap_losses(self._share_loss)
        self._jit_compile_argument = jit_compile
        self._has_unweighted_metrics = bool(metrics)
        self.optimizer.build(self.trainable_variables)
        compat.leave_gradients_as_they_are(self.optimizer)  # the step sums them over the replicas
        self._use_xla(jit_compile is True)

    def _share_loss(self, loss):
        share_loss = ShareLoss(loss, self._num_shares)
        self._share_losses.append(share_loss)
        return share_loss

    def _use_xla(self, on):
        self._uses_xla = on
        # XLA cannot compile variables on several devices, so the optimizer is not compiled there,
        # and cannot compile all that is done to images (`WorkerBatches.on_device`).
        on_one_device = self._num_replicas == 1
        whole_step = on_one_device and not self._has_blocks and self._on_device is None
        self.jit_compile = on and whole_step
        self._jit_gradients = on and not whole_step and not self._has_blocks
        self.jit_update = on and not whole_step and on_one_device
        self.trace()

    def _chooses_xla(self, batch_spec):
        """Whether to compile steps on batches of this structure with XLA, and why: (bool, str)."""
        if self._jit_compile_argument != "auto":
            return self._jit_compile_argument, "jit_compile says"
        if not has_gpu():
            return False, "there is no GPU"
        if self._has_blocks:
            return True, "each kind of block is compiled once for each shape of batches"
        specs = [one for one in tf.nest.flatten(batch_spec) if isinstance(one, tf.TensorSpec)]
        if all(None not in spec.shape[1:] for spec in specs):
            return True, "all batches have one shape"
        return False, "batches have several shapes, each of which takes time to compile"

    @property
    def _num_replicas(self):
        return self.distribute_strategy.num_replicas_in_sync

    @property
    def _num_shares(self):
        return self._num_replicas * self.parts_per_share

    def trace(self):
        """Traces the training step again, after an attribute of a layer has changed."""
        self._compiled_blocks = CompiledBlocks() if self._uses_xla and self._has_blocks else None
        self._traced_gradients = tf.function(
            functools.partial(loss_and_gradients, self),
            jit_compile=self._jit_gradients,
            reduce_retracing=True,
            # Otherwise, TensorFlow would optimize the graph once for each part of a batch.
            experimental_attributes={"_noinline": True},
        )
        self.make_train_function(force=True)
        self.test_function = None  # Keras makes it again

    def fit(
        self,
        batches,
        epochs=1,
        steps_per_epoch=None,
        validation_data=None,
        validation_freq=1,
        initial_epoch=0,
        callbacks=None,
        verbose="auto",
        accumulation=1,
    ):
        """Calls `keras.Model.fit` on a data set of batches; only the chief prints progress.

        Args:
            batches: `WorkerBatches` or infinite `tf.data.Dataset` of batches (inputs, labels,
                weights).
            epochs, initial_epoch, validation_freq, callbacks, verbose: as in Keras.
            steps_per_epoch: as in Keras; several workers need it.
            validation_data: `WorkerBatches` or `tf.data.Dataset` with a known number of batches.
            accumulation: number of parts in which each replica computes its rows of a batch, one
                after the other, which takes less memory. Their losses and gradients are summed.

        Returns:
            `keras.callbacks.History`.
        """
        strategy = self.distribute_strategy
        if not distribution.is_chief(strategy):
            verbose = 0
        if verbose and self._num_replicas > 1:
            print(f"Training on {self._num_replicas} devices")
        batches = distribution.as_worker_batches(batches)
        batch_spec = batches.shares(tf.distribute.InputContext()).element_spec  # of one replica
        uses_xla, reason = self._chooses_xla(batch_spec)
        if verbose:
            print(f"XLA: {'on' if uses_xla else 'off'}, as {reason}")
        is_traced = (
            uses_xla == self._uses_xla
            and accumulation == self.parts_per_share
            and batches.on_device is self._on_device
        )
        if not is_traced:
            self.parts_per_share = accumulation
            self._on_device = batches.on_device
            self._use_xla(uses_xla)  # traces the step
        for loss in self._share_losses:
            loss.num_shares = self._num_shares
        with strategy.scope():
            self._build_metrics(batch_spec)
        validation_steps = None
        if validation_data is not None:
            validation_data = distribution.as_worker_batches(validation_data)
            validation_steps = validation_data.num_batches
            validation_data = distribution.distribute(validation_data, strategy)
        return super().fit(
            distribution.distribute(batches, strategy),
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            validation_data=validation_data,
            validation_steps=validation_steps,
            validation_freq=validation_freq,
            initial_epoch=initial_epoch,
            callbacks=callbacks,
            verbose=verbose,
            shuffle=False,  # the batches are already shuffled
        )

    def evaluate(self, batches=None, steps=None, *, x=None, **arguments):
        """Calls `keras.Model.evaluate` on a data set of batches with known cardinality."""
        if x is not None:  # `fit` passes its validation data by this name; they are distributed
            return super().evaluate(x, steps=steps, **arguments)
        batches = distribution.as_worker_batches(batches)
        steps = batches.num_batches if steps is None else steps
        batches = distribution.distribute(batches, self.distribute_strategy)
        return super().evaluate(batches, steps=steps, **arguments)

    def save(self, *args, **kwargs):
        """Saves the trained model, without the trainer."""
        return self.trained_model().save(*args, **kwargs)

    def train_step(self, share):
        parts = self._in_parts(self._computed_on_device(share))
        # By default, the gradients are a part of the graph of the step: only there can layers
        # communicate between replicas, as synchronized batch normalization does.
        compute_gradients = functools.partial(loss_and_gradients, self)
        if self._jit_gradients or len(parts) > 1:
            # A `tf.function` of their own: what XLA compiles of the step, or one graph for all
            # parts, which would otherwise be traced one by one.
            compute_gradients = self._traced_gradients
        loss = training_step(self, parts, compute_gradients)
        return self._logs(loss, share)

    def _computed_on_device(self, share):
        """Applies `WorkerBatches.on_device`, such as an augmentation."""
        if self._on_device is None:
            return share
        inputs, labels, share_weights = share
        inputs, labels = self._on_device(inputs, labels)
        return inputs, labels, share_weights

    def _in_parts(self, share):
        return [share] if self.parts_per_share == 1 else in_parts(share, self.parts_per_share)

    def test_step(self, share):
        loss = validation_step(self, self._in_parts(share))
        return self._logs(loss, share)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Returns the loss of a share, whose weights are `ShareWeights`.

        The shares of a batch have equal parts of the regularization losses.
        """
        weights = None
        if sample_weight.weights is not None or self._num_shares > 1:
            weights = loss_weights(sample_weight, self._reduction, self._num_replicas)
        return super().compute_loss(x, y, y_pred, weights, training)

    def update_metrics(self, share, outputs):
        """Updates the metrics given to `compile` with a share, without its repeated rows."""
        _, labels, share_weights = share
        if self._num_shares > 1:
            self._check_parts(labels, outputs)
        if self.metrics_of_compile is None:
            return
        weights = share_weights.weights
        if self._num_shares > 1:  # some rows may be repeated
            if weights is None or self._has_unweighted_metrics:  # they are removed
                select = functools.partial(_select_rows, selected=share_weights.is_real > 0)
                labels, outputs, weights = keras.tree.map_structure(
                    select, (labels, outputs, weights)
                )
            else:  # a weight of 0 for these rows, which takes less time
                weights = loss_weights(share_weights, "sum", self._num_replicas)
        self.metrics_of_compile.update_state(labels, outputs, weights)

    def _check_parts(self, labels, outputs):
        names = self.parts_of_whole_batches(labels, outputs)
        if names:
            raise UserError(
                f"What is computed of a whole batch ({', '.join(names)}) cannot be split between "
                f"{self._num_shares} devices or parts of a batch. Return a value for each row, "
                "to a loss or metric given to compile, or train on one device without accumulation."
            )

    def get_metrics_result(self):
        """As in Keras, but a metric with several values becomes an entry for each.

        `keras.metrics.F1Score` becomes `f1_score_0`, `f1_score_1`, ..., because callbacks such as
        `TensorBoard` take scalars only. A result that is a dict has names of its own.
        """
        return _scalars(super().get_metrics_result())

    def measure_gradient_norm(self):
        """Requests that the next step stores `gradient_norm`; callbacks call it before a step."""
        self.gradient_norm.assign(_REQUESTED)

    def record_gradient_norm(self, gradients, loss):
        """Stores the norm of the gradients, if it is requested or the loss is not finite."""
        if not gradients:
            self.gradient_norm.assign(0.0)
            return
        last_norm = tf.convert_to_tensor(self.gradient_norm)

        def norm():
            return global_norm(gradients) / self.optimizer.scale_loss(1.0)  # scaled for float16

        is_due = (last_norm == _REQUESTED) | ~tf.math.is_finite(loss)
        self.gradient_norm.assign(tf.cond(is_due, norm, lambda: last_norm))

    def _logs(self, loss, share):
        """Updates the reported loss with that of this replica; returns the metrics."""
        _, _, share_weights = share
        size = share_weights.num_rows
        if self._reduction == "mean_with_sample_weight":
            size = share_weights.total_weight
        # Keras sums total and count of the tracker over the R replicas:
        # count = Σ size / R = size, and total = Σ (R · loss) · size / R = size · Σ loss.
        loss_tracker = self.metrics[0]
        loss_tracker.update_state(
            loss * self._num_replicas, sample_weight=size[0] / self._num_replicas
        )
        logs = self.get_metrics_result()
        if distribution.num_workers(self.distribute_strategy) > 1:
            # Keras averages the logs of several workers over their first axis.
            logs = {name: tf.expand_dims(value, 0) for name, value in logs.items()}
        return logs

    def _build_metrics(self, batch_spec):
        """Builds losses and metrics, given the specs of a batch."""

        def step(share):
            return self.test_step(self._computed_on_device(share))

        self.build_losses_and_metrics(step, keras.tree.map_structure(_symbolic, batch_spec))


def _symbolic(spec):
    """The `keras.KerasTensor` of a spec; None for that of weights that a data set does not have."""
    if not isinstance(spec, tf.TensorSpec):
        return None
    return keras.KerasTensor((_ROWS_TO_BUILD, *spec.shape[1:]), spec.dtype.name)


def _scalars(results):
    scalars = {}
    for name, value in results.items():
        if isinstance(value, dict):
            scalars.update(_scalars(value))
        elif len(value.shape) == 0:
            scalars[name] = value
        else:
            values = tf.unstack(tf.reshape(value, [-1]))
            scalars.update({f"{name}_{index}": one for index, one in enumerate(values)})
    return scalars


def _select_rows(tensor, selected):
    """The selected rows of a tensor or None, and of what Keras attaches to it."""
    if tensor is None:
        return None
    rows = tf.boolean_mask(tensor, selected)
    attributes = compat.keras_attributes(tensor)
    compat.set_keras_attributes(rows, [_select_rows(one, selected) for one in attributes])
    return rows
