"""Trace readers, workloads and prompts: against hand-made files and the published figures."""

import statistics
from itertools import islice, pairwise
from pathlib import Path

import pytest

from serving_probe.errors import TraceError, WorkloadError
from serving_probe.replay.core import Lengths, ReplayConfig, Shape
from serving_probe.replay.plan import plan_run
from serving_probe.replay.prompts import Prompts, count_tokens
from serving_probe.replay.tally import quantile
from serving_probe.replay.trace import read_trace
from serving_probe.replay.workload import FOLDER, Workload, shipped_workloads

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
AZURE += "2023-11-16 18:15:50.9951690,396,109"  # CRLF, and no line end after the last row
MOONCAKE = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
MOONCAKE += '{"timestamp": 1500, "input_length": 512, "output_length": 7, "hash_ids": [0]}\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_bytes(text.encode())
    return path


def test_azure_rows_become_shapes(tmp_path: Path) -> None:
    first, second = read_trace(written(tmp_path, AZURE)).shapes
    assert (first.offset_s, first.input_tokens, first.output_tokens) == (0, 374, 44)
    assert second.offset_s == pytest.approx(4.314579, abs=2e-6)
    assert (second.input_tokens, second.output_tokens, second.block_ids) == (396, 109, ())


def test_mooncake_rows_keep_their_blocks_and_scale_them(tmp_path: Path) -> None:
    path = written(tmp_path, MOONCAKE)
    first, second = read_trace(path, lengths=Lengths(scale=1 / 8, max_output=6)).shapes
    assert (first.input_tokens, first.output_tokens) == (75, 1)
    assert (first.block_ids, first.block_tokens) == ((0, 1), 64)
    assert (second.offset_s, second.input_tokens, second.output_tokens) == (1.5, 64, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty; expected Azure CSV or Mooncake JSONL"),
        ("a,b,c\n1,2,3\n", "line 1: expected the columns TIMESTAMP,ContextTokens,GeneratedTokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "has a header but no requests"),
        (AZURE + "\nyesterday,1,2", "line 4: expected a time and two token counts"),
        (AZURE + "\n2023-11-16 18:15:46,1", "line 4: expected a time and two token counts"),
        (AZURE + "\n2023-11-16 18:15:46,-1,2", "line 4: expected a time and two token counts"),
        (MOONCAKE + "{", "line 3: expected a JSON object with timestamp"),
        (MOONCAKE + '{"timestamp": 1}', "line 3: expected a JSON object"),
        (
            '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0]}',
            "line 1: expected .* one id for every 512",
        ),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceError, match=says) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)


def test_an_absent_or_binary_trace_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="is not UTF-8 text"):
        read_trace(tmp_path / "binary")


# What the data sets' publishers and readers give: rows, medians, p90s, sums, mean rate per second.
PUBLISHED = {
    "AzureLLMInferenceTrace_code.csv": (
        8819,
        (1469, 13),
        (5187.6, 55),
        (18_059_974, 245_896),
        2.567,
    ),
    "AzureLLMInferenceTrace_conv.csv": (
        19366,
        (1020, 129),
        (2734.5, 424),
        (22_361_870, 4_088_665),
        5.530,
    ),
    "mooncake_conversation_trace.jsonl": (
        12031,
        (6909, 350),
        (27367, 597),
        (144_793_823, 4_122_048),
        3.40,
    ),
    "mooncake_synthetic_trace.jsonl": (
        3993,
        (11587, 69),
        (38611, 389),
        (61_194_628, 595_432),
        3.91,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_public_traces_give_the_published_figures(traces: Path, name: str) -> None:
    n, medians, p90s, sums, rate = PUBLISHED[name]
    shapes = read_trace(traces / name).shapes
    assert len(shapes) == n
    for index, field in enumerate(("input_tokens", "output_tokens")):
        values = sorted(getattr(shape, field) for shape in shapes)
        assert statistics.median(values) == medians[index]
        assert quantile(values, 0.9) == pytest.approx(p90s[index], abs=0.5)
        assert sum(values) == sums[index]
    assert n / shapes[-1].offset_s == pytest.approx(rate, rel=3e-3)


def test_quantised_arrivals_are_spread_seeded_and_said(traces: Path) -> None:
    path = traces / "mooncake_conversation_trace.jsonl"
    trace = read_trace(path, seed=1)
    offsets = [shape.offset_s for shape in trace.shapes]
    assert trace.notes == (
        "arrivals are stamped every 3 s; spread evenly inside that step, seed 1",
    )
    assert len(set(offsets)) == len(offsets)  # 1,180 distinct values in the file
    gaps = [b - a for a, b in pairwise(offsets)]
    cv = statistics.stdev(gaps) / statistics.mean(gaps)
    assert 0.9 < cv < 1.2  # 3.03 as stamped
    assert trace == read_trace(path, seed=1)
    assert trace.shapes != read_trace(path, seed=2).shapes
    assert read_trace(traces / "mooncake_synthetic_trace.jsonl").notes == ()


def test_a_traces_shared_blocks_are_shared_text_and_nothing_else_is(traces: Path) -> None:
    path = traces / "mooncake_conversation_trace.jsonl"
    shapes = read_trace(path, lengths=Lengths(scale=1 / 8)).shapes[:300]
    prompts = Prompts(seed=0)
    texts = [prompts.turns(shape)[0].text for shape in shapes]
    assert [count_tokens(text) for text in texts] == [shape.input_tokens for shape in shapes]
    for (a, text_a), (b, text_b) in pairwise(zip(shapes, texts, strict=True)):
        n_shared = sum(1 for x, y in zip(a.block_ids, b.block_ids, strict=False) if x == y)
        words_a, words_b = text_a.split(), text_b.split()
        same = 0
        for x, y in zip(words_a, words_b, strict=False):
            if x != y:
                break
            same += 1
        shared = count_tokens(" ".join(words_a[:same]))
        least = min(n_shared * 64, a.input_tokens, b.input_tokens)
        assert least - 1 <= shared <= least + 16, (a.block_ids[:3], b.block_ids[:3])


@pytest.mark.parametrize("name", shipped_workloads())
def test_drawn_lengths_and_rate_are_the_published_ones(name: str) -> None:
    workload = Workload.load(FOLDER / f"{name}.toml")
    shapes = list(islice(workload.shapes(seed=0, lengths=Lengths()), 20_000))
    scale = workload.length_scale
    assert workload.source.licence in ("CC-BY-4.0", "Apache-2.0")
    drawn_in = statistics.mean(shape.input_tokens for shape in shapes)
    assert drawn_in == pytest.approx(workload.input_tokens.mean * scale, rel=0.05)
    if workload.max_output_tokens is None:
        drawn_out = statistics.mean(shape.output_tokens for shape in shapes)
        assert drawn_out == pytest.approx(workload.output_tokens.mean * scale, rel=0.08)
    median_in = statistics.median(shape.input_tokens for shape in shapes)
    assert median_in == pytest.approx(workload.input_tokens.at(0.5) * scale, rel=0.05)
    gaps = [b.offset_s - a.offset_s for a, b in pairwise(shapes)]
    rel = 0.02 + 4 * workload.arrivals.cv / len(gaps) ** 0.5
    assert 1 / statistics.mean(gaps) == pytest.approx(workload.arrivals.rate_per_s, rel=rel)
    cv = statistics.stdev(gaps) / statistics.mean(gaps)
    assert cv == pytest.approx(workload.arrivals.cv, rel=0.3 if workload.arrivals.cv > 2 else 0.05)


def test_a_conversation_repeats_its_past_and_keeps_the_drawn_length() -> None:
    workload = Workload.load(FOLDER / "demo.toml")
    shapes = list(islice(workload.shapes(seed=3, lengths=Lengths()), 400))
    prompts = Prompts(seed=3)
    said: dict[int, tuple[str, ...]] = {}
    systems = set()
    n_continued = 0
    for shape in shapes:
        turns = prompts.turns(shape)
        assert shape.conversation is not None
        texts = tuple(turn.text for turn in turns)
        before = said.get(shape.conversation)
        if before is not None:
            assert texts[: len(before)] == before
            assert [turn.role for turn in turns[-3:]] == ["user", "assistant", "user"]
            n_continued += 1
        said[shape.conversation] = texts
        if turns[0].role == "system":
            systems.add(turns[0].text)
        if shape.input_tokens > 6:
            assert sum(turn.n_tokens + 5 for turn in turns) == shape.input_tokens
        for turn in turns:
            assert count_tokens(turn.text) == turn.n_tokens
    assert len(systems) == 3
    assert n_continued > len(shapes) / 5
    assert {shape.tenant for shape in shapes} == {"atlas", "birch"}


def test_bounds_and_scales_apply_to_any_source(tmp_path: Path) -> None:
    path = str(written(tmp_path, AZURE))
    url = "http://localhost:1"
    whole = plan_run(ReplayConfig.create(url=url, source=path))
    assert whole.n_total == len(list(whole.shapes)) == 2
    early = plan_run(ReplayConfig.create(url=url, source=path, seconds=4.0))
    assert early.n_total == 1
    fast = plan_run(ReplayConfig.create(url=url, source=path, seconds=4.0, rate_scale=2))
    assert fast.n_total == 2
    assert fast.notes == ("rate scaled by 2",)
    some = plan_run(ReplayConfig.create(url=url, source="demo", n_requests=5))
    assert len(list(some.shapes)) == 5
    minute = plan_run(ReplayConfig.create(url=url, source="azure-conversation", seconds=60))
    assert 200 < len(list(minute.shapes)) < 500


def test_a_bad_workload_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    good = (FOLDER / "azure-code.toml").read_text()
    for text, says in [
        ("name = ", "is not valid TOML"),
        (good.replace("[arrivals]", "[arrival]"), "arrivals: Field required"),
        (good.replace('"gamma"', '"poisson"'), "a Poisson process has cv 1"),
        (good.replace("[0, 3]", "[0.5, 3]"), "levels must rise from 0 to 1"),
        (good.replace("[1, 7437]", "[1, 7]"), "values must not fall"),
    ]:
        path.write_text(text)
        with pytest.raises(WorkloadError, match=says):
            Workload.load(path)
    with pytest.raises(WorkloadError, match="cannot read workload"):
        Workload.load(tmp_path / "none.toml")


def test_short_prompts_are_still_prompts() -> None:
    prompts = Prompts(seed=0)
    for n_tokens in range(1, 12):
        (turn,) = prompts.turns(Shape(0.0, n_tokens, 1))
        assert turn.text.strip()
