"""Models and tokenizers from a folder or the hub, with the checks that must not wait until training.

`trust_remote_code` stays off, weights come from safetensors only. What the packed forward cannot do exactly
(sliding windows, soft-capping, recurrent layers) is refused here: by its configuration, and by comparing with the
model's own forward.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from dapo.models import attention
from dapo.models.logprobs import chosen_logprobs
from dapo.models.packing import Packed, pack

transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]

VOCABULARY = "live_vocabulary"  # attribute of a loaded model: how many rows of the output layer are tokens
PARITY = {torch.float32: 1e-3, torch.bfloat16: 0.25}


@dataclass(frozen=True)
class Tokens:
    """A tokenizer with what the system needs of it. `eos` holds every id that ends a response."""

    tokenizer: Any
    eos: frozenset[int]

    def decode(self, ids: tuple[int, ...]) -> str:
        """The text of a response, without special tokens; bytes that are no UTF-8 become U+FFFD."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def resolve_model_path(path: str, recipe_folder: Path) -> str:
    """`path` beside the recipe, else below the working directory, else the hub's name as it stands."""
    for base in (recipe_folder, Path.cwd()):
        if (base / path / "config.json").is_file():
            return str((base / path).resolve())
    if Path(path).is_absolute() or path.startswith(".") or path.count("/") != 1:
        raise ValueError(
            f"model.path = {path!r}: no folder with a config.json there, beside the recipe or below {Path.cwd()}, "
            f"and it is no hub name (owner/name)"
        )
    return path


def load_tokens(path: str) -> Tokens:
    """Load a tokenizer. Errors: ValueError if neither it nor the generation configuration names an EOS token."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except OSError as error:
        raise ValueError(
            f"model.path = {path!r} is no folder here and could not be loaded from the hub ({str(error).splitlines()[0]}); "
            f"for the quickstart's model run scripts/fetch_smollm2.py first"
        ) from None
    eos: set[int] = set()
    if tokenizer.eos_token_id is not None:
        eos.add(int(tokenizer.eos_token_id))
    generation = Path(path) / "generation_config.json"
    if generation.is_file():
        value = json.loads(generation.read_text()).get("eos_token_id")
        eos.update([value] if isinstance(value, int) else value or [])
    if not eos:
        raise ValueError(
            f"model.path = {path!r}: the tokenizer has no EOS token, so no response could end; set eos_token in "
            f"tokenizer_config.json or eos_token_id in generation_config.json"
        )
    return Tokens(tokenizer, frozenset(eos))


def load_model(path: str, dtype: torch.dtype, device: torch.device, vocabulary: int) -> Any:
    """Load a decoder-only model with our attention, in evaluation mode, and check that the packed forward is exact.

    vocabulary: how many tokens the tokenizer has. Errors: ValueError if the model has fewer, if it has windowed layers, or
    if the packed forward differs from the model's own.
    """
    _check_layers(path)
    model: Any = AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation=attention.NAME, use_safetensors=True
    )
    model.to(device).eval()
    model.config.use_cache = False
    rows = model.get_output_embeddings().weight.shape[0]
    if vocabulary > rows:
        raise ValueError(
            f"model.path = {path!r}: the tokenizer has {vocabulary} tokens, the model only {rows} embeddings; they do not "
            f"belong together"
        )
    setattr(model, VOCABULARY, vocabulary)
    check_parity(model, path)
    return model


def _check_layers(path: str) -> None:
    config = AutoConfig.from_pretrained(path)
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = set(getattr(config, "layer_types", None) or []) - {"full_attention"}
    if kinds or (window and not getattr(config, "layer_types", None)):
        raise ValueError(
            f"model.path = {path!r}: layers of type {sorted(kinds) or ['sliding_attention']} are not supported; prefix trees "
            f"need full attention in every layer"
        )


def max_context(path: str) -> int | None:
    """The longest sequence the model was built for, in tokens, if its configuration says."""
    value = getattr(AutoConfig.from_pretrained(path), "max_position_embeddings", None)
    return int(value) if value else None


def hidden_states(model: Any, packed: Packed, **kwargs: Any) -> Tensor:
    """Final hidden states (R, n, D) of the packed rows."""
    out = model.base_model(
        input_ids=packed.ids_Rn,
        position_ids=packed.position_Rn,
        attention_mask=packed.mask_R1nn,
        use_cache=False,
        **kwargs,
    )
    states: Tensor = out.last_hidden_state
    return states


def output_layer(model: Any) -> tuple[Tensor, Tensor | None]:
    """Weight (V, D) and bias (V) of the output layer, without the rows that pad the vocabulary: no token has them."""
    layer: nn.Linear = model.get_output_embeddings()
    weight, bias = layer.weight, layer.bias
    live = getattr(model, VOCABULARY, weight.shape[0])
    if live == weight.shape[0]:
        return weight, bias
    return weight[:live], None if bias is None else bias[:live]


@torch.no_grad()
def check_parity(model: Any, name: str) -> None:
    """Two sequences that share a prefix: packed log-probabilities against the model's own plain causal forward.

    The plain side uses the model's stock attention and its own masks. Errors: ValueError if they differ.
    """
    weight, bias = output_layer(model)
    size = min(weight.shape[0], 50)
    prefix = [i % size for i in range(3, 15)]
    sequences = [[*prefix, 5 % size, 7 % size, 2 % size], [*prefix, 1 % size, 6 % size]]
    device = weight.device
    packed = pack(sequences, 64, device)
    hidden_Nd = hidden_states(model, packed).flatten(0, 1)
    worst = 0.0
    model.set_attn_implementation("eager")
    try:
        for tokens, path in zip(sequences, packed.path, strict=True):
            ids = torch.tensor([tokens], device=device)
            plain = model(input_ids=ids, use_cache=False).logits[0, :-1, : weight.shape[0]].float().log_softmax(-1)
            target = ids[0, 1:]
            mine, _ = chosen_logprobs(hidden_Nd[torch.as_tensor(path[:-1], device=device)], weight, bias, target, 1.0)
            worst = max(worst, float((mine - plain.gather(1, target[:, None])[:, 0]).abs().max()))
    finally:
        model.set_attn_implementation(attention.NAME)
    if worst > PARITY[weight.dtype]:
        raise ValueError(
            f"model.path = {name!r}: the packed forward differs from the model's own by {worst:.3g} nats; "
            f"architectures with soft-capped logits or recurrent layers are not supported"
        )
