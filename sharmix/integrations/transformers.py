"""For Hugging Face transformers: sparse attention, losses for its Trainer, and sparse candidates in generation."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sharmix._activation import Activation
from sharmix._arguments import as_autocast
from sharmix._attention import LengthScale, Weighting, attend, weighting
from sharmix.criteria import FenchelYoungLoss

try:
    from transformers import AttentionInterface, AttentionMaskInterface, LogitsProcessor, PreTrainedModel
    from transformers.masking_utils import sdpa_mask
except ImportError as error:
    raise ImportError("this module needs transformers 5 or newer: pip install 'sharmix[transformers]'") from error

try:  # a private name of transformers: what the current call of a model records
    from transformers.utils.output_capturing import _active_collector as _recorded
except ImportError:
    _recorded = None

__all__ = ["SupportLogitsProcessor", "attach_criterion", "register_attention"]

# Arguments by which some models change attention: a soft cap (Gemma 2), sinks (GPT-OSS, Inkling 2), keys chosen for
# each query (DeepSeek V3.2, MiniMax M3), pages of continuous batching
_UNSUPPORTED = ("softcap", "s_aux", "sinks", "indices", "block_indices", "cache")


def register_attention(name: str, activation: Weighting, length_scale: LengthScale | None = None) -> None:
    """Give an attention implementation a name that every model of transformers can select.

    Select it by `model.set_attn_implementation(name)`, or by `attn_implementation=name` in a config or in
    `from_pretrained`. A saved config does not contain the name: a model loaded without it computes softmax attention.

    Args:
        name: the name of the implementation. An implementation that already has this name is replaced.
        activation, length_scale: as for `sharmix.attention`. All attention layers share them, except a layer that has a
            module `sharmix_activation` of its own: see docs/attention.md.

    Raises:
        TypeError, ValueError: the activation is not allowed.

    Example:
        >>> from sharmix.integrations.transformers import register_attention
        >>> register_attention("sharmix_entmax", "entmax")
        >>> from transformers import LlamaConfig, LlamaModel
        >>> sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8}
        >>> sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2}
        >>> config = LlamaConfig(**sizes, attn_implementation="sharmix_entmax")
        >>> LlamaModel(config)(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
        torch.Size([1, 3, 8])
    """
    built = weighting(activation)  # built once; a wrong activation raises here, not in the model
    AttentionInterface.register(name, partial(_attention_forward, built, length_scale))
    AttentionMaskInterface.register(name, sdpa_mask)  # its masks are bool, or None where `is_causal` is enough


def _attention_forward(
    activation: Weighting,
    length_scale: LengthScale | None,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """The output [N, L, heads, Ev] and the weights [N, heads, L, S]; arguments as transformers passes them."""
    for unsupported in _UNSUPPORTED:
        if options.get(unsupported) is not None:
            raise ValueError(f"{type(module).__name__} computes attention with {unsupported}, which sharmix lacks")
    declared = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = declared and attention_mask is None and query.shape[-2] > 1  # a single query comes after all cached keys
    if position_bias is not None:
        seen = query.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril() if causal else attention_mask
        attention_mask, causal = _biased(position_bias, seen), False
    activation = getattr(module, "sharmix_activation", activation)
    enable_gqa = query.shape[-3] != key.shape[-3]
    output, weights = attend(
        query, key, value, activation, attention_mask, dropout, causal, scaling, enable_gqa, length_scale,
        need_weights=options.get("output_attentions") or _records_weights(),
    )  # fmt: skip
    return output.transpose(1, 2).contiguous(), weights


def _records_weights() -> bool:
    """Whether the model has been asked for the weights of attention: some models do not tell their layers."""
    if _recorded is None:
        return True
    return any(name.endswith("attentions") for name in _recorded.get() or ())


def _biased(bias: Tensor, mask: Tensor | None) -> Tensor:
    """The position bias and the mask as one mask of numbers: −inf where a bool mask hides the key."""
    if mask is None:
        return bias
    return torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else bias + mask


class SupportLogitsProcessor(LogitsProcessor):  # type: ignore[misc]
    """Limit generation, at each step, to the support of a sparse map: the tokens with a probability above 0.

    The model's scores decide how many candidates there are, while top-k and top-p need a number. There may be a single
    candidate, also in beam search: see docs/attention.md.

    Args:
        activation: an `Activation` whose outputs sum to 1, or the name of one.
        own_probabilities: whether candidates are sampled by the probabilities of the activation, whose logarithms then
            become the scores, or by the softmax of their scores.

    Shape:
        scores (batch, vocabulary), before any softmax; the returned scores have the same shape.

    Raises:
        TypeError, ValueError: the activation is not allowed.

    Source: Martins, Marinho and Martins, Sparse Text Generation (2020), whose entmax sampling is
    `SupportLogitsProcessor("entmax", own_probabilities=True)`.

    Example:
        >>> from sharmix.integrations.transformers import SupportLogitsProcessor
        >>> scores = torch.tensor([[2.0, 1.0, -1.0]])
        >>> SupportLogitsProcessor("entmax")(None, scores)
        tensor([[2., 1., -inf]])
        >>> SupportLogitsProcessor("entmax", own_probabilities=True)(None, scores).softmax(-1)
        tensor([[0.8307, 0.1693, 0.0000]])
    """

    def __init__(self, activation: Activation | str, own_probabilities: bool = False) -> None:
        self.activation = weighting(activation)
        if not getattr(self.activation, "normalised", True):
            raise ValueError(f"activation={activation!r} is not allowed; it can leave no candidate")
        self.own_probabilities = own_probabilities

    def __call__(self, input_ids: Tensor | None, scores: Tensor) -> Tensor:
        probabilities = self.activation(scores)
        if self.own_probabilities:
            return probabilities.log()
        return scores.masked_fill(probabilities == 0, -torch.inf)


def attach_criterion(model: PreTrainedModel, criterion: FenchelYoungLoss) -> Callable[..., Tensor]:
    """Give a causal language model a criterion, for a training that never holds all logits in memory.

        Σₜ L(zₜ, yₜ₊₁) / num_items_in_batch,      z = hidden · weightᵀ + bias

    Each token predicts the next one, so the labels are shifted, as transformers does it. The loss and its gradients are
    those of the criterion on the model's logits. The output layer and the loss are computed together, a few rows at a
    time.

    The criterion becomes a part of the output layer, so learned orders are trained, moved and saved with the model. In
    training, `outputs.logits` are NaN, and a loss of your own that uses them raises an error in its backward pass. In
    `model.eval()` or `torch.no_grad()`, as in evaluation and `generate`, the model computes its logits.

    Args:
        model: a model of transformers, such as one of `AutoModelForCausalLM`, whose output layer is a `torch.nn.Linear`
            and whose logits are what this layer returns.
        criterion: a criterion with the reduction "mean" and without class weights. A criterion that the model already
            has is replaced.

    Returns:
        The function of (outputs, labels, num_items_in_batch=None) that `transformers.Trainer` takes as
        `compute_loss_func`. The labels are class indices (batch, tokens), and its loss is a scalar: the sum divided by
        `num_items_in_batch`, or the mean without it.

    Raises:
        TypeError, ValueError: the model or the criterion is not allowed. The returned function raises a ValueError in
            training if the model changes the logits after the output layer, as by a scale (Cohere, Granite) or a soft
            cap (Gemma 2).

    Source: docs/math.md, section 5.

    Example:
        >>> from sharmix import EntmaxLoss
        >>> from sharmix.integrations.transformers import attach_criterion
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=2)
        >>> model = GPT2LMHeadModel(config)
        >>> compute_loss_func = attach_criterion(model, EntmaxLoss(alpha=1.5))
        >>> tokens = torch.tensor([[1, 2, 3]])
        >>> compute_loss_func(model(tokens), tokens).backward()
    """
    kind, head = type(model).__name__, model.get_output_embeddings()
    if model.config.is_encoder_decoder or not model.can_generate():
        raise ValueError(f"{kind} is not a causal language model")
    if type(head) not in (nn.Linear, _WithheldLogits):
        raise TypeError(f"the output layer of {kind} must be a torch.nn.Linear, got {type(head)}")
    if not isinstance(criterion, FenchelYoungLoss):
        raise TypeError(f"criterion must be a FenchelYoungLoss, got {criterion!r}")
    if criterion.weight is not None or criterion.reduction != "mean":
        raise ValueError(f"{criterion!r} is not allowed; it must have no class weights, and the reduction 'mean'")
    head.__class__ = _WithheldLogits
    head.criterion = criterion.to(head.weight.device).train(head.training)
    return partial(_loss_of_next_tokens, criterion)


def _loss_of_next_tokens(
    criterion: FenchelYoungLoss, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    if labels is None:
        raise ValueError("the batch has no labels; a language model's are its tokens")
    logits, activation = outputs.logits, criterion.activation
    words = labels[..., 1:].to(logits.device)
    options: dict[str, Any] = {name: getattr(criterion, name) for name in ("ignore_index", "label_smoothing")}
    options["reduction"] = "mean" if num_items_in_batch is None else "sum"
    if layer := getattr(logits, "sharmix_layer", None):
        trained, hidden, weight, bias = layer
        if trained is not criterion:
            raise ValueError(
                "the outputs are of a copy of the model, or of one that has another criterion since; use the function "
                "that attach_criterion returns for it"
            )
        loss = activation.linear_loss(hidden[..., :-1, :], weight, bias, words, **options)
    elif criterion.training and torch.is_grad_enabled():
        raise ValueError(
            "the outputs do not hold what the output layer returned. attach_criterion is for a model that does not "
            "change its logits, as Gemma 2, Cohere, Granite and OPT do; it needs the model that is trained; and on "
            "several processes the Trainer needs ddp_find_unused_parameters=False"
        )
    else:
        loss = activation.loss(logits[..., :-1, :], words, **options)
    return loss if num_items_in_batch is None else loss / torch.as_tensor(num_items_in_batch, device=loss.device)


class _WithheldLogits(nn.Linear):
    """An output layer that computes no logits in training: it hands its input and itself on to the loss."""

    criterion: FenchelYoungLoss

    def forward(self, hidden: Tensor) -> Tensor:
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(hidden)
        logits: Tensor = _Withheld.apply(hidden, len(self.weight))
        # A model that changes its logits makes a tensor without this attribute.
        layer = self.criterion, *as_autocast(hidden, self.weight, self.bias)
        logits.sharmix_layer = layer  # type: ignore[attr-defined]
        return logits


class _Withheld(torch.autograd.Function):
    """NaN in place of the logits [..., words]: one number in memory, in float32, which no trainer converts."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, words: int) -> Tensor:
        return hidden.new_full((), torch.nan, dtype=torch.float32).expand(*hidden.shape[:-1], words)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError("there are no logits in training after attach_criterion; use the loss that it returned")
