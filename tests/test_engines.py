"""Engines: the protocol for all of them; for the embedded one exactness, distribution, and independence of neighbours."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_packing import FAMILIES, SIZES
from transformers import AutoModelForCausalLM

from dapo.models import attention
from dapo.rollout.engine import sample_seed
from dapo.rollout.scripted import ScriptedEngine
from dapo.rollout.torch.engine import TorchEngine
from dapo.rollout.torch.sampler import draw, uniform
from dapo.types import Request, Sampling

EOS = 1
PROMPTS = [(5, 6, 7, 8), (5, 6, 7), (9, 3), (5, 6, 7, 8, 2, 2, 2, 4), (4,)]


def model_of(family, seed=0, scale=3.0):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(FAMILIES[family](**SIZES), attn_implementation=attention.NAME).eval()
    with torch.no_grad():
        for p in model.parameters():
            p *= scale  # so that the distributions are far from uniform
    return model


def requests(sampling, samples=3, prompts=PROMPTS):
    return [
        Request(g, s, prompt, sampling, sample_seed(0, 0, str(prompt), 0, s))
        for g, prompt in enumerate(prompts)
        for s in range(samples)
    ]


def drain(engine):
    out = []
    while finished := engine.poll():
        out += finished
    return {(c.group_id, c.sample): c for c in out}


def scripted():
    return ScriptedEngine(lambda r: (r.prompt_ids[0],) * (1 + r.sample) + (EOS,), delay_seed=3)


@pytest.fixture(scope="module")
def llama():
    return model_of("llama")


ENGINES = {"scripted": lambda model: scripted(), "torch": lambda model: TorchEngine(model, frozenset({EOS}), 4)}


@pytest.mark.parametrize("name", ENGINES)
def test_the_protocol(name, llama):
    engine = ENGINES[name](llama)
    engine.load(None, 7)
    sampling = Sampling(max_new_tokens=6)
    engine.submit(requests(sampling))
    done = drain(engine)
    assert set(done) == {(g, s) for g in range(len(PROMPTS)) for s in range(3)}
    for c in done.values():
        assert c.version == 7
        assert 1 <= len(c.token_ids) <= 6
        assert len(c.logp_gen) == len(c.token_ids)
        assert c.finish == ("stop" if c.token_ids[-1] == EOS else "length")
        assert c.finish == "stop" or len(c.token_ids) == 6
        assert EOS not in c.token_ids[:-1]
    assert engine.poll() == []


@pytest.mark.parametrize("name", ENGINES)
def test_cancel_returns_what_came_and_leaves_the_others(name, llama):
    engine = ENGINES[name](llama)
    engine.submit(requests(Sampling(max_new_tokens=30)))
    first = engine.poll()
    stopped = engine.cancel([1, 2, 4])
    rest = drain(engine)
    assert {c.finish for c in stopped} == {"cancelled"}
    seen = [(c.group_id, c.sample) for c in [*first, *stopped, *rest.values()]]
    assert sorted(seen) == [(g, s) for g in range(len(PROMPTS)) for s in range(3)]
    assert not {g for g, _ in rest} & {1, 2, 4}


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_generate(family):
    model = model_of(family)
    engine = TorchEngine(model, frozenset({EOS}), 8)
    engine.submit(requests(Sampling(temperature=0, max_new_tokens=20), samples=1))
    done = drain(engine)
    model.set_attn_implementation("eager")
    for g, prompt in enumerate(PROMPTS):
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=20,
            eos_token_id=EOS,
            pad_token_id=0,
            use_cache=True,
        )[0, len(prompt) :]
        assert done[g, 0].token_ids == tuple(out.tolist())
    model.set_attn_implementation(attention.NAME)


def test_reported_logprobs_are_the_models(llama):
    engine = TorchEngine(llama, frozenset({EOS}), 5)
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=9, max_new_tokens=12)
    engine.submit(requests(sampling))
    for (g, _), c in drain(engine).items():
        ids = torch.tensor([PROMPTS[g] + c.token_ids])
        causal = torch.ones(1, 1, ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        logp = (llama(input_ids=ids, attention_mask=causal).logits[0] / 0.7).log_softmax(-1)
        expected = logp[len(PROMPTS[g]) - 1 : -1].gather(1, ids[0, len(PROMPTS[g]) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(c.logp_gen), expected, rtol=0, atol=1e-4)


def test_a_response_is_the_same_alone_and_among_others(llama):
    sampling = Sampling(max_new_tokens=16)
    together = TorchEngine(llama, frozenset({EOS}), 64)
    together.submit(requests(sampling, samples=12))
    crowd = drain(together)
    for request in requests(sampling, samples=12):
        alone = TorchEngine(llama, frozenset({EOS}), 1)
        alone.submit([request])
        (c,) = drain(alone).values()
        assert c.token_ids == crowd[request.group_id, request.sample].token_ids


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_cancel_and_refill_never_change_another_row(llama, seed, max_rows):
    rng = random.Random(seed)
    sampling = Sampling(max_new_tokens=14)
    reference = TorchEngine(llama, frozenset({EOS}), 64)
    reference.submit(requests(sampling))
    expected = drain(reference)
    engine = TorchEngine(llama, frozenset({EOS}), max_rows)
    waiting = requests(sampling)
    got, cancelled = {}, set()
    while waiting or len(got) + sum(g in cancelled for g, _ in expected.keys() - got.keys()) < len(expected):
        count = rng.randint(0, 5)
        chunk, waiting = waiting[:count], waiting[count:]
        engine.submit([r for r in chunk if r.group_id not in cancelled])
        for c in engine.poll():
            got[c.group_id, c.sample] = c
        if rng.random() < 0.2 and len(cancelled) < 2:
            group = rng.randrange(len(PROMPTS))
            cancelled.add(group)
            engine.cancel([group])
    for key, c in got.items():
        assert c.token_ids == expected[key].token_ids
    assert {g for g, _ in got} | cancelled == set(range(len(PROMPTS)))


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=0.6), Sampling(top_k=3), Sampling(top_p=0.8), Sampling(1.3, 0.7, 6)],
    ids=lambda s: f"T{s.temperature}-p{s.top_p}-k{s.top_k}",
)
def test_tokens_follow_the_distribution(sampling):
    n, vocabulary = 40_000, 12
    logits_V = torch.tensor([2.0, 1.5, 1.2, 0.7, 0.3, 0.1, -0.4, -0.9, -1.5, -2.0, -3.0, -30.0])[torch.randperm(12)]
    u_N = torch.from_numpy(uniform(np.arange(n, dtype=np.uint64) * 977, np.zeros(n)))
    token_N, logp_N = draw(logits_V.expand(n, vocabulary), sampling, u_N)
    expected = (logits_V / sampling.temperature).softmax(-1)
    torch.testing.assert_close(logp_N, expected.log()[token_N])
    order = expected.argsort(descending=True)
    allowed = order[: sampling.top_k] if sampling.top_k else order
    kept = torch.zeros(vocabulary)
    kept[allowed] = expected[allowed]
    kept /= kept.sum()
    before = kept[order].cumsum(0) - kept[order]
    kept[order[before >= sampling.top_p]] = 0
    kept /= kept.sum()
    count_V = torch.bincount(token_N, minlength=vocabulary).double()
    assert count_V[kept == 0].sum() == 0
    live = kept * n > 5
    chi2 = float((((count_V - kept * n) ** 2) / (kept * n))[live].sum())
    assert chi2 < 33  # 11 degrees of freedom: p about 5e-4


def test_streams_of_seeds_and_positions_are_uniform_and_distinct():
    seed_N = np.repeat(np.arange(500, dtype=np.uint64), 100)
    u = uniform(seed_N, np.tile(np.arange(100), 500))
    assert len(np.unique(u)) > 49_500
    histogram = np.bincount((u * 20).astype(int), minlength=20)
    assert ((histogram - 2500) ** 2 / 2500).sum() < 44  # 19 degrees of freedom: p about 1e-3
    assert u.max() < 1
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.02


def test_new_weights_are_in_the_next_tokens(llama):
    engine = TorchEngine(model_of("llama"), frozenset({EOS}), 8)
    sampling = Sampling(temperature=0, max_new_tokens=10)
    other = model_of("llama", seed=5)
    engine.load(dict(other.named_parameters()), 3)
    engine.submit(requests(sampling, samples=1))
    expected = TorchEngine(other, frozenset({EOS}), 8)
    expected.submit(requests(sampling, samples=1))
    a, b = drain(engine), drain(expected)
    assert {k: c.token_ids for k, c in a.items()} == {k: c.token_ids for k, c in b.items()}
    assert {c.version for c in a.values()} == {3}
