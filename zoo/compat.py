"""The private names of Keras and TensorFlow that this package uses, and what each is needed for.

No other file uses private names, as `tests/test_imports.py` checks. These were checked with Keras
3.15.1 and TensorFlow 2.21. Check them again before you update one of the two.
"""

import contextlib
import functools
import types

import keras
from keras.src.backend import compute_output_spec
from keras.src.backend import get_keras_mask as get_keras_mask
from keras.src.backend import set_keras_mask as set_keras_mask
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import in_stateless_scope as in_stateless_scope
from keras.src.initializers.random_initializers import RandomInitializer as RandomInitializer
from keras.src.layers.layer import CallContext

_ATTRIBUTES = ("_keras_mask", "_keras_logits")  # metrics look at them

# `RandomInitializer` is the base class of initializers that draw random numbers.

# `get_keras_mask(tensor)` returns the mask that a layer attached to its output, or None. Keras
# passes the mask of the first input to a layer's argument `mask`; this gives that of any input.


def keras_attributes(tensor):
    """Returns the mask that Keras attaches to a tensor and the logits of probabilities, or None."""
    return [getattr(tensor, name, None) for name in _ATTRIBUTES]


def set_keras_attributes(tensor, values):
    for name, value in zip(_ATTRIBUTES, values):
        if value is not None:  # Keras asks whether a tensor has the attribute
            setattr(tensor, name, value)


@contextlib.contextmanager
def without_autocast():
    """A context in which variables are not cast to the compute dtype.

    ``Layer(autocast=False)`` would hold for all calls of a layer. In ``AutocastScope(None)``, the
    dtype of a variable would be `keras.config.floatx`.
    """
    scope = global_state.get_global_attribute("autocast_scope")
    global_state.set_global_attribute("autocast_scope", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("autocast_scope", scope)


def call_training():
    """Returns `training` of the outermost layer call, None outside of one.

    A method other than `call` is not given it.
    """
    context = global_state.get_global_attribute("current_call_ctx")
    return None if context is None else context.get_value("training")


@contextlib.contextmanager
def call_context(training):
    """A context in which layers are called with this `training`; None changes nothing.

    Keras opens one in `Layer.__call__`, but on JAX, `fit` runs `Layer.stateless_call` instead.
    """
    if training is None:
        yield
        return
    outer = global_state.get_global_attribute("current_call_ctx")
    context = CallContext(entry_layer=None)
    context.set_value("training", training)
    global_state.set_global_attribute("current_call_ctx", context)
    try:
        yield
    finally:
        global_state.set_global_attribute("current_call_ctx", outer)


def in_xla_context():
    """Whether XLA will compile the TensorFlow graph that is being traced."""
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def dropout(inputs, rate, noise_shape, seed_generator):
    """`keras.random.dropout` that names the generator to XLA.

    Keras has TensorFlow choose it. TensorFlow chooses the same, but in a part of a step that XLA
    compiles for CPUs, it then takes 40 times as long.
    """
    if keras.backend.backend() != "tensorflow" or rate == 1 or not in_xla_context():
        return keras.random.dropout(inputs, rate, noise_shape, seed_generator)
    import tensorflow as tf
    from keras.src.backend.tensorflow import random

    return tf.nn.experimental.stateless_dropout(
        inputs,
        rate,
        random._cast_seed(seed_generator.next()),
        rng_alg="philox",
        noise_shape=random._get_concrete_noise_shape(inputs, noise_shape),
    )


def maximum(x, axis, keepdims=False):
    """`ops.max`, also of batches without rows, which Keras refuses without `initial`."""
    if keras.backend.backend() == "torch":  # there, `initial` is always on the CPU
        return keras.ops.amax(x, axis, keepdims)
    return keras.ops.max(x, axis, keepdims, initial=-float("inf"))


def all_layers(layer):
    """Lists a layer or model and all layers within it; `Model.layers` has the outermost only."""
    return layer._flatten_layers()


def outermost_layers(layer):
    """`Model.layers` of any layer: the layers in its attributes, in the order of creation."""
    return layer._flatten_layers(include_self=False, recursive=False)


def stored_matrix(layer):
    """Returns the variable of a dense or embedding layer.

    The property `kernel` adds LoRA's update, and fails for int8.
    """
    return layer._kernel if hasattr(layer, "_kernel") else layer._embeddings


# --- training ------------------------------------------------------------------------------------


class TrainingModel(keras.Model):
    """Base class of a model with its own training step: public names of what `fit` uses."""

    parts_per_share = 1  # batches are computed in this number of equal parts on each device

    @property
    def metrics_of_compile(self):
        """The metrics given to `compile`, which Keras updates together; None without any."""
        return self._compile_metrics

    def build_losses_and_metrics(self, step, batch):
        """Builds the losses and metrics without a first step.

        Args:
            step: function of a batch, the training step.
            batch: `keras.KerasTensor`s.
        """
        parts = (self._compile_loss, self._compile_metrics)
        if any(part is not None and not part.built for part in parts):
            compute_output_spec(step, batch)

    @property
    def metrics(self):
        """Also those of the model, which Keras leaves out as it is within another."""
        return [*super().metrics, *self.model._metrics]

    def wrap_losses(self, wrap):
        """Replaces each loss by ``wrap(loss)``, once Keras has built them by their names."""
        losses = self._compile_loss
        if losses is None:
            return

        def build(y_true, y_pred):
            type(losses).build(losses, y_true, y_pred)
            losses._flat_losses = [one._replace(loss=wrap(one.loss)) for one in losses._flat_losses]
            for tracker in losses.metrics:  # one for each output, if there are several
                tracker.update_state = functools.partial(self._track_loss, tracker)

        losses.build = build

    def _track_loss(self, tracker, loss, sample_weight):
        # The losses of the parts are parts of the loss of the share.
        keras.metrics.Mean.update_state(tracker, loss * self.parts_per_share)

    def parts_of_whole_batches(self, labels, outputs):
        """Names losses and metrics of layers, and metrics without a value for each row."""
        layers = all_layers(self.model)
        names = [f"add_loss in {one.name}" for one in layers if one._get_own_losses()]
        found = [metric for one in layers for metric in one._metrics]
        metrics = self._compile_metrics
        if metrics is not None:
            if not metrics.built:
                metrics.build(labels, outputs)
            pairs = list(zip(metrics._flatten_y(labels), metrics._flatten_y(outputs)))
            for of_outputs in (metrics._flat_metrics, metrics._flat_weighted_metrics):
                for one, (y_true, y_pred) in zip(of_outputs, pairs):
                    given = [] if one is None else one.metrics
                    found += [metric for metric in given if not _is_of_rows(metric, y_true, y_pred)]
        return names + [f"the metric {metric.name}" for metric in found]

    def _aggregate_additional_loss(self, loss):
        return super()._aggregate_additional_loss(loss) / self.parts_per_share

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # The model is built. Keras would average the first batch over the replicas, which fails
        # with several workers or if replicas have different numbers of rows.
        pass


def _is_of_rows(metric, y_true, y_pred):
    if not isinstance(metric, keras.metrics.MeanMetricWrapper):
        return True
    shape = metric._fn(y_true, y_pred, **metric._fn_kwargs).shape
    is_of_rows = len(shape) > 0 and shape[0] in (None, y_pred.shape[0])
    return is_of_rows and metric._fn is not keras.losses.circle  # it compares them


def compile_arguments(model):
    """Returns the arguments of `compile` as objects; `Model.get_compile_config` returns JSON."""
    arguments = {
        "optimizer": model.optimizer,
        "loss": model.loss,
        "loss_weights": None,
        "metrics": (),
        "weighted_metrics": (),
        "auto_scale_loss": False,  # `model.optimizer` scales it already, if it should
    }
    losses = model._compile_loss
    if losses is not None:
        arguments["loss_weights"] = losses._user_loss_weights
    metrics = model._compile_metrics
    if metrics is not None:
        arguments["metrics"] = metrics._user_metrics or ()
        arguments["weighted_metrics"] = metrics._user_weighted_metrics or ()
    return arguments


def leave_gradients_as_they_are(optimizer):
    """Stops an optimizer from summing gradients over the replicas, as Keras does after clipping."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    optimizer._all_reduce_sum_gradients = list


class SwapEMAWeights(keras.callbacks.SwapEMAWeights):
    """Swaps exactly. On TensorFlow, Keras swaps by adding and subtracting, which rounds."""

    def _tf_swap_variables(self, optimizer):
        import tensorflow as tf

        def swap(variable, average):
            before = tf.identity(variable)
            variable.assign(average)
            average.assign(before)

        update = optimizer._distribution_strategy.extended.update
        averages = optimizer._model_variables_moving_average
        for variable, average in zip(optimizer._trainable_variables, averages):
            update(variable.value, swap, args=(average.value,))


def higher_is_better(metric):
    """Returns `metric`; Keras's callbacks with ``mode="auto"`` then know that higher is better."""
    metric._direction = "up"
    return metric


class DecayInUpdate:
    """Mixin for optimizers that apply weight decay to each variable in `update_step`."""

    def _apply_weight_decay(self, variables):
        pass

    def has_decay(self, variable):
        """Whether weight decay applies to a variable."""
        return self.weight_decay is not None and self._use_weight_decay(variable)

    def index_of(self, variable):
        """The index of a variable among those that the optimizer is built with."""
        return self._get_variable_index(variable)


class MuonOfConvolutions:
    """Mixin for Muon that trains kernels of convolutions, too, unless they are excluded."""

    def _should_use_adamw(self, variable):
        if len(variable.shape) == 4:  # Keras excludes all but matrices
            variable = types.SimpleNamespace(path=variable.path, shape=variable.shape[-2:])
        return super()._should_use_adamw(variable)


def loss_of_function(function):
    """Makes a `keras.losses.Loss` of a function of (labels, outputs), as `compile` does."""
    from keras.src.losses.losses import LossFunctionWrapper

    return LossFunctionWrapper(function)


# --- several workers -----------------------------------------------------------------------------


def expand_slurm_nodes(nodes, tasks_per_node):
    """Returns pairs (node, number of tasks) for SLURM's "n[1-2],m" and "2(x2),1".

    Raises:
        ValueError: if SLURM's texts are not understood.
    """
    from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver as slurm

    counts = slurm.expand_tasks_per_node(tasks_per_node)
    return list(zip(slurm.expand_hostlist(nodes), counts, strict=True))


def num_coordinated_workers():
    """Returns the number of workers in TensorFlow's coordination service; 0 without a service."""
    from tensorflow.python.eager import context

    service = context.context().coordination_service
    return 0 if service is None else sum(job.num_tasks for job in service.coordinated_job_list)


def abort_other_workers(message):
    """Ends the collective operations of all workers with an error of this message."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    context.context().report_error_to_cluster(tf.errors.ABORTED, message)
