"""What the settings of the recipes mean: one word for one thing, with its limits."""

import math

from zoo.errors import UserError
from zoo.training.command import flags

_AT_LEAST_1 = (
    "patch_size embed_dim num_heads num_layers ff_dim epochs patience batch_size tokens_per_batch "
    "repeats accumulation average_last beam_size blocks_per_stage image_size validation_freq steps "
    "eval_steps train_examples lora_rank steps_per_execution checkpoints_kept"
)
_AT_LEAST_0 = (
    "learning_rate learning_rate_scale warmup_steps weight_decay clip_norm crop_padding "
    "checkpoint_minutes checkpoint_steps"
)


class Settings:
    """Base of the settings of all recipes, with the help texts and limits of those they share.

    A recipe declares the ones it has, as fields of a dataclass with its default values.

    Attributes:
        patch_size: Side of a patch in pixels.
        embed_dim: Width of the model.
        num_heads: Attention heads; must divide the width.
        num_layers: Number of blocks; with an encoder and a decoder, those of the encoder.
        num_decoder_layers: Blocks of the decoder; as many as in the encoder by default.
        ff_dim: Hidden width of the feed-forward networks.
        dropout: Dropout rate of embeddings and blocks.
        attention_dropout: Dropout rate of attention weights.
        stochastic_depth: Drop rate of the last block; it increases linearly from 0 at the first
            block.
        patch_dropout: Share of the patches that training leaves out of each image, to take less
            time.
        norm: Position of layer normalization; post, as in the first Transformers, needs a longer
            warmup.
        activation: Activation of the feed-forward networks.
        positions: Kind of positions.
        pool: Input of the head: the class token, or the mean of the tokens.
        num_registers: Number of learned tokens without an image patch, besides the class token.
        tokenizer: Kind of tokens, learned from the training text; text outside the vocabulary is
            encoded as bytes.
        vocab_size: Maximum vocabulary size.
        vocabulary: One shared vocabulary and embedding for source and target, or one for each.
        epochs: Number of epochs; training may stop earlier if there is a patience.
        patience: Stop after this many epochs without a lower validation loss.
        batch_size: Examples per step.
        tokens_per_batch: Tokens per batch, padding included; of sentence pairs for source and
            target each.
        learning_rate: Peak learning rate, after the warmup; then cosine decay to zero.
        learning_rate_scale: Factor of the learning rate; the peak is this / √(width · warmup
            steps).
        warmup_steps: Steps of linear warmup of the learning rate.
        warmup_fraction: Share of the steps used for linear warmup of the learning rate.
        weight_decay: Decoupled weight decay of kernels, times the learning rate.
        clip_norm: Maximum global norm of the gradients; None for no clipping.
        ema_momentum: Momentum of the moving average of the weights, which is tested and saved.
        average_last: Number of epochs whose weights are averaged at the end, up to the best one.
        beam_size: Beam size of the search; 1 is greedy search.
        length_penalty: Exponent of the length penalty; higher values favor longer translations, 0
            disables it.
        label_smoothing: Share of a label spread over all classes.
        repeats: Number of times an image occurs in its batch, each with a different augmentation;
            an epoch then has that many times the steps.
        crop_padding: Pixels by which a crop may be shifted.
        min_crop_area: Smallest share of an image that a random crop, later resized, may cover; None
            disables these crops.
        flip_probability: Probability that an image is flipped left to right.
        randaugment_num_ops: RandAugment operations per image; 0 to disable.
        randaugment_magnitude: Strength of the RandAugment operations, 0 to 1.
        randaugment_probability: Probability that such an operation is applied.
        erase_probability: Probability that a box of an image is erased.
        mixup_alpha: Mixup draws its mixing share from Beta(alpha, alpha); 0 to disable.
        cutmix_alpha: CutMix draws its mixing share from Beta(alpha, alpha); 0 to disable.
        mix_probability: Probability that an image is mixed with another by Mixup or CutMix.
    """

    LIMITS = {
        **dict.fromkeys(_AT_LEAST_1.split(), (1, math.inf)),
        **dict.fromkeys(_AT_LEAST_0.split(), (0, math.inf)),
        **dict.fromkeys(("warmup_fraction", "ema_momentum", "layer_decay"), (0, 1)),
        "seed": (0, 2**32 - 1),
        "label_smoothing": (0, 0.99),
        "min_crop_area": (0.01, 1),
        "validation_split": (0, 0.9),
        "max_length": (2, math.inf),
    }

    def __post_init__(self):
        for name, limits in self.LIMITS.items():
            if hasattr(self, name):
                self.check(name, *limits)

    def check(self, name, low, high=math.inf):
        """Checks a setting that is not None.

        Raises:
            UserError: if it is NaN or outside its limits; the message names its flag.
        """
        value = getattr(self, name)
        if value is not None and not low <= value <= high:
            limits = f"at least {low}" if high == math.inf else f"from {low} to {high}"
            raise UserError(f"{flags(name)} must be {limits}. Received: {value}.")

    def check_divides(self, part, whole):
        """Checks that a setting divides another one.

        Raises:
            UserError: if it does not.
        """
        values = getattr(self, part), getattr(self, whole)
        if values[1] % values[0]:
            raise UserError(
                f"{flags(part)} must divide {flags(whole)}. Received: {values[0]} and {values[1]}."
            )

    def chosen(self, names):
        """The settings of these names, separated by spaces, as a dict."""
        return {name: getattr(self, name) for name in names.split()}
