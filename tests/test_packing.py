"""Prefix-tree packing and chunked log-probabilities are exact: same values and gradients as plain rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from dapo.models import attention, logprobs
from dapo.models.loading import check_parity, hidden_states, load_model, output_layer
from dapo.models.logprobs import chosen_logprobs
from dapo.models.packing import pack

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 17,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


def make(family):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(FAMILIES[family](**SIZES), attn_implementation=attention.NAME).double()


def plain_logps(model, tokens):
    ids = torch.tensor([tokens])
    model.set_attn_implementation("eager")
    logits = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
    model.set_attn_implementation(attention.NAME)
    return logits[:-1].gather(1, ids[0, 1:, None])[:, 0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row_tokens", [1, 12, 100])
def test_packed_values_and_gradients_equal_plain_rows(family, row_tokens):
    model = make(family)
    sequences = [[1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2, 3], [9, 8, 7, 6, 5], [1, 2, 3, 5, 7, 7], [9, 8]]
    plain = torch.cat([plain_logps(model, s) for s in sequences])
    scale = torch.linspace(-1, 1, len(plain), dtype=torch.float64)
    (plain * scale).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()

    packed = pack(sequences, row_tokens, CPU)
    hidden = hidden_states(model, packed).flatten(0, 1)
    index = torch.cat([torch.as_tensor(p[:-1]) for p in packed.path])
    target = torch.cat([torch.tensor(s[1:]) for s in sequences])
    mine, _ = chosen_logprobs(hidden[index], *output_layer(model), target, 1.0)
    (mine * scale).sum().backward()
    torch.testing.assert_close(mine, plain, rtol=1e-6, atol=1e-7)  # transformers softmaxes in float32
    for p, e in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, e, rtol=1e-4, atol=1e-6)


def test_shared_prefixes_stand_once():
    packed = pack([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4, 6]], 100, CPU)
    assert (packed.n_rows, packed.n_columns) == (1, 6)
    assert [p.tolist() for p in packed.path] == [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 3, 5]]
    assert packed.position_Rn.tolist() == [[0, 1, 2, 3, 3, 4]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8), st.integers(1, 20))
def test_every_token_sees_exactly_its_own_past(sequences, row_tokens):
    packed = pack(sequences, row_tokens, CPU)
    n = packed.n_columns
    for tokens, path in zip(sequences, packed.path, strict=True):
        assert packed.ids_Rn.flatten()[path].tolist() == tokens
        assert packed.position_Rn.flatten()[path].tolist() == list(range(len(tokens)))
        for i, node in enumerate(path):
            row, column = divmod(int(node), n)
            assert packed.mask_R1nn[row, 0, column].nonzero().flatten().tolist() == sorted(path[: i + 1] - row * n)


def test_an_empty_sequence_is_refused():
    with pytest.raises(ValueError, match="empty sequence"):
        pack([[1], []], 10, CPU)


@pytest.mark.parametrize("chunk", [1, 40, 10_000])
def test_chunked_logprobs_equal_log_softmax(monkeypatch, chunk):
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", chunk)
    g = torch.Generator().manual_seed(1)
    hidden = torch.randn(9, 5, generator=g, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(13, 5, generator=g, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(13, generator=g, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 13, (9,), generator=g)
    logits = (hidden @ weight.T + bias) / 0.7
    full = logits.log_softmax(-1)
    expected = full.gather(1, target[:, None])[:, 0]
    logp, entropy = chosen_logprobs(hidden, weight, bias, target, 0.7)
    torch.testing.assert_close(logp, expected)
    torch.testing.assert_close(entropy, -(full.exp() * full).sum(-1))
    upstream = torch.randn(9, generator=g, dtype=torch.float64)
    a = torch.autograd.grad((expected * upstream).sum(), (hidden, weight, bias))
    b = torch.autograd.grad((logp * upstream).sum(), (hidden, weight, bias))
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(y, x)


def test_a_model_that_the_packed_forward_does_not_fit_is_refused(tiny_model):
    model = load_model(str(tiny_model), torch.float32, CPU, 19)
    forward = model.forward

    def soft_capped(**kwargs):
        out = forward(**kwargs)
        out.logits = 3 * torch.tanh(out.logits / 3)
        return out

    model.forward = soft_capped
    with pytest.raises(ValueError, match="packed forward differs"):
        check_parity(model, "capped")
