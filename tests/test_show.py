"""What the verdicts look like to a person, and the corners of reading that no whole file needs."""

import io

import pytest
from fabricate import fabricate
from rich.console import Console

from dapo.config import build_recipe
from dapo.conformance.evidence import Evidence
from dapo.conformance.foreign.config import Config, Unresolved, flatten, scalar
from dapo.conformance.foreign.inspect import Inspection
from dapo.conformance.foreign.parts import (
    CLIP,
    Finding,
    Soft,
    brief,
    clip_higher,
    dual_clip,
    slips,
    soft_overlong,
    zero,
)
from dapo.conformance.foreign.python import read_python
from dapo.conformance.foreign.read import read
from dapo.conformance.foreign.shell import MARK, parse
from dapo.conformance.foreign.trees import inspect_nemo, inspect_prime, inspect_roll, inspect_skyrl
from dapo.conformance.judge import judge_all
from dapo.conformance.recipes import judge_recipe
from dapo.conformance.show import print_inspection, print_judgement, print_standing


def shown(function, *arguments):
    out = io.StringIO()
    function(Console(file=out, width=200), *arguments)
    return out.getvalue().splitlines()


def test_a_judgement(tmp_path):
    lines = shown(print_judgement, *judge_all(Evidence(fabricate(tmp_path / "run", "dapo"))))
    assert lines[0].startswith("    D1 pass Clip-Higher: 24 tokens were trained at ratios")
    assert lines[18] == "   D19 pass no other clip: no token with A < 0 was cut above, none with A > 0 below"
    assert lines[19] == "verdict: DAPO"
    document = judge_all(Evidence(tmp_path / "run"))[0].as_json()
    assert document["clauses"][2] == {
        "number": "D3", "part": "clip values", "rule": "eps_low 0.2, eps_high 0.28", "source": "4.1", "core": False,
        "occasional": False, "verdict": "pass", "evidence": "fixed_bounds with eps 0.2 / 0.28 in 6 updates",
    }  # fmt: skip
    assert lines[20].startswith("as GRPO: not GRPO (base: DAPO): it lacks symmetric clip (G1), no filter (G2)")
    assert len(lines) == 22


def test_an_inspection():
    findings = (
        Finding(CLIP, "off", "epsilon = 0.2", "0.2 / 0.28", "not raised"),
        Finding(CLIP, "on-as-paper", "x", "y"),
    )
    assert shown(print_inspection, Inspection("TRL", "1.16", findings, False, "not DAPO")) == [
        "TRL, read by its keys of 1.16",
        "                 off Clip-Higher: epsilon = 0.2; not raised [paper: 0.2 / 0.28]",
        "         on-as-paper Clip-Higher: x",
        "verdict: not DAPO",
    ]

    assert Inspection("TRL", "1.16", findings, False, "not DAPO").as_json()["findings"][1]["verdict"] == "on-as-paper"


def test_a_standing():
    raw = {"model": {"path": "m"}, "data": {"source": "s"}, "algo": {"base": "dapo"}, "train": {"steps": 1}}
    lines = shown(print_standing, judge_recipe(build_recipe(raw, {"algo.filter": "none"})))
    assert lines == [
        "  algo.filter = 'none' (DAPO: 'resample')",
        "verdict: not DAPO: algo.filter = 'none' (DAPO: 'resample')",
    ]


def test_python_values():
    text = """
x = 1
x = 2
y: int = 3
class A:
    z: int
f(x, y, [y, 'a'], {'k': y, **more}, {y: 1}, dict(a=1), dict(b), y * 2, y / 0, 'a' * 2, -y, -4, None, g(1), a.b)
h[0](1)
A.g = 3
A.h: int = 4
for A.h in (1, 2):
    pass
for q in [1]:
    d(q, y ** 2, 10 ** 9 * 10 ** 9, 1e14 * 10 * 10)
class E(A):
    pass
class F(A, E):
    pass
E()
A.f(**{'p': 1}, **other)
"""
    calls, imported, attributes = read_python("import os.path\nfrom a import b as d\nfrom . import c\n" + text)
    assert imported == ("os.path", "a.b", ".c")
    assert attributes == {"A.g": 3, "A.h": Unresolved("A.h is bound more than once")}
    (f,) = [c for c in calls if c.name == "f"]
    values = [str(v) if isinstance(v, Unresolved) else v for v in f.args]
    assert values == [
        "x is bound more than once", 3, [3, "a"], {"k": 3, "**": Unresolved("more")}, {"3": 1}, {"a": 1}, "dict(b)", 6, "y / 0",
        "'a' * 2", "-y", -4, None, "g(1)", "a.b",
    ]  # fmt: skip
    assert [c.name for c in calls if not c.name] == [""]
    assert "E" not in {c.name for c in calls}  # a class that only inherits goes by what it inherits from
    (b,) = [c for c in calls if c.name == "b"]
    assert [str(v) for v in b.args] == [
        "q is bound more than once",
        "y ** 2",
        "10 ** 9 * 10 ** 9",
        "100000000000000.0 * 10 * 10",
    ]
    (method,) = [c for c in calls if c.name == "A.f"]
    assert method.kwargs == {"p": 1, "**": Unresolved("other")}


def test_shell_ends_in_all_ways():
    assert parse("x=1").variables == {"x": "1"}
    assert parse("x=").variables == {"x": ""}
    assert parse("x=a # b").variables == {"x": "a"}
    assert parse("cmd a; then\nelse\ndo x\n# end").commands == [["cmd", "a"], ["x"]]
    assert parse("cmd a\\").commands == [["cmd", "a\\"]]
    assert parse("cmd $").commands == [["cmd", f"{MARK}$"]]
    assert parse("f() { cmd b; }").commands == [["f"], ["cmd", "b"]]
    assert parse("for\ncmd c").commands == [["for"], ["cmd", "c"]]
    assert parse("cmd ${x:-}y ${y-$(a)}").commands == [["cmd", "y", f"{MARK}$(a)"]]
    assert parse("x=(a\n\nb)\ncmd ${x[0]}").commands == [["cmd", f"{MARK}${{x[0]}}"]]
    assert parse("x=(a ; (b))\ncmd ${x[@]}").commands[-1] == ["cmd", "a", "b"]
    assert parse("f() {\n  local y\n  local x=2\n}\ncmd $x").commands[-1] == ["cmd", f"{MARK}$x"]
    assert parse("x=1\nf() {\n  local x=2\n}\ncmd $x").commands[-1] == ["cmd", "1"]
    assert parse("cmd a < <(sort $(b)) > ").commands == [["cmd", "a"]]
    assert parse("cmd <<EOF\nx 'y\n").commands == [["cmd"]]
    assert parse('cmd <<< "x y" a 2>&1 &> log &\n').commands == [["cmd", "a"]]
    assert parse("x='cmd b'\neval $x").commands == [["eval", "cmd", "b"], ["cmd", "b"]]
    assert parse("bash -lc 'cmd b'; sh -x cmd c").commands == [
        ["bash", "-lc", "cmd b"],
        ["cmd", "b"],
        ["sh", "-x", "cmd", "c"],
    ]
    assert parse("}\ncmd a").commands == [["cmd", "a"]]
    with pytest.raises(ValueError, match="` is never closed"):
        parse("cmd `x")


def test_yaml_parents_of_other_kinds(tmp_path):
    (tmp_path / "a.yaml").write_text("defaults: {x: 1}\ngrpo: {a: 1}\n")
    assert read(tmp_path / "a.yaml")[0].settings == {"grpo.a": 1}
    (tmp_path / "b.yaml").write_text("defaults: [{x: y}, gone.yaml, lost.yaml]\nx: 1\n")
    assert read(tmp_path / "b.yaml")[0].incomplete == "the parent gone.yaml is not at hand"
    (tmp_path / "nemo.yaml").write_text("defaults: ../grpo_math_1B.yaml\nx: 1\n")
    assert read(tmp_path / "nemo.yaml")[0].incomplete == ""  # its values are the mapping's defaults
    (tmp_path / "c.sh").write_text("python run.py config=gone.yaml\n")
    assert read(tmp_path / "c.sh")[0].incomplete == "the file gone.yaml is not at hand"
    (tmp_path / "d").write_text("no kind")
    with pytest.raises(ValueError, match="cannot tell what kind of file it is"):
        read(tmp_path / "d")


def test_what_grows_or_nests_without_end(tmp_path):
    deep = {}
    for _ in range(80):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="nested deeper than 60"):
        flatten(deep)
    (tmp_path / "many.sh").write_text("swift rlhf " + " ".join(f"k{i}=1" for i in range(20_001)))
    with pytest.raises(ValueError, match="more than 20000 settings"):
        read(tmp_path / "many.sh")
    (tmp_path / "loop.sh").write_text("x='eval $x'\neval $x\n")
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path / "loop.sh")
    (tmp_path / "table.sh").write_text("run a={b:$C} b={c:{d:1}} c={d} d={e:1,f:x}\n")
    settings = read(tmp_path / "table.sh")[0].settings
    assert {k: str(v) for k, v in settings.items()} == {
        "a": "{b:$C}", "b": "{c:{d:1}}", "c": "{d}", "d.e": "1", "d.f": "x",
    }  # fmt: skip


def made(kind="yaml", **settings):
    return Config(kind, settings)


def test_corners_of_the_rules():
    assert clip_higher(made(a=0.2, b=None), "a", "b").verdict == "off"
    assert clip_higher(made(a=None, c=0.3, b=0.4), "a", "b", both="c").why == "bounds 0.3 / 0.4"
    assert dual_clip(made(c=Unresolved("$C")), "c", None).verdict == "needs-code"
    assert zero(made(a="none"), "x", {"a": 1}).verdict == "on-as-paper"
    nemo = made(**{"grpo.use_dynamic_sampling": True, "grpo.use_leave_one_out_baseline": Unresolved("$L")})
    assert [f.verdict for f in inspect_nemo(nemo) if f.part == "Dynamic Sampling"] == ["needs-code"]
    prime = made(**{"trainer.loss.type": Unresolved("$T")})
    assert [f.verdict for f in inspect_prime(prime) if f.part == CLIP] == ["needs-code"]
    assert brief(Unresolved("$X")) == "($X)"
    assert [f.verdict for f in inspect_roll(made(rewards=Unresolved("$R"))) if f.part == "Dynamic Sampling"] == [
        "needs-code"
    ]
    assert scalar("[a, [b]]") == ["a", "b"]
    assert brief([1, [2, [3]], {"a": 1}, *range(9)]) == "[1, [2, [...]], {...}, 0, 1, 2, ...]"
    assert len(brief("x" * 999)) == 203
    question = soft_overlong(Soft(20480, 4096, 1, Unresolved("$L"), True, ""))
    assert (question.verdict, question.why) == ("on-as-paper", "decided at run time: $L")
    looked = made(**{"a.eps_clip_hihg": 1, "b": 2})
    looked.get("a.eps_clip_high")
    assert [f.why for f in slips(looked)] == ["not a key of the mapping; eps_clip_high is"]
    skyrl = inspect_skyrl(made(**{"trainer.algorithm.overlong_buffer_len": 4096}))
    assert [f.verdict for f in skyrl if f.part == "Soft Overlong Punishment"] == ["needs-code"]
    skyrl = inspect_skyrl(made(**{"trainer.algorithm.eps_clip_low": 0.2}))
    assert [f.verdict for f in skyrl if f.part == "Soft Overlong Punishment"] == ["off"]
    for tree in ({}, {"orchestrator": 1}, {"orchestrator": {"train": 1}}, {"orchestrator": {"train": {"source": 1}}},
                 {"orchestrator": {"train": {"source": [{"curriculum": 1}, 1]}}},
                 {"orchestrator": {"train": {"source": [{"curriculum": {"gates": 1}}]}}}):  # fmt: skip
        found = inspect_prime(Config("toml", {}, tree=tree))
        assert [f.verdict for f in found if f.part == "Dynamic Sampling"] == ["off"]
