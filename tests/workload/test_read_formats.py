"""Every format as its publisher writes it, and every way a good file may be wrapped."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workload.readers import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def write(folder, text):
    path = folder / "trace"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(trace):
    return list(zip(trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


CASES = {
    "azure 2023: seven digits": (
        "azure",
        "wall time",
        AZURE + "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951697,396,109",
        [(0.0, 374, 44), (4.3145797, 396, 109)],
    ),
    "azure 2023: milliseconds are kept apart": (
        "azure",
        "wall time",
        AZURE + "".join(f"2023-11-16 18:15:46.{ms:03}0000,5,5\n" for ms in (1, 2, 9, 11)),
        [(0.0, 5, 5), (0.001, 5, 5), (0.008, 5, 5), (0.010, 5, 5)],
    ),
    "azure 2024: offset, with and without a fraction": (
        "azure",
        "wall time",
        AZURE + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n",
        [(0.0, 2162, 5), (0.99007, 2399, 6)],
    ),
    "azure: other offsets": (
        "azure",
        "wall time",
        AZURE + "2024-05-10T02:00:00+02:00,1,1\n2024-05-10 00:00:01Z,2,2\n2024-05-09 18:30:02.5-05:30,3,3\n",
        [(0.0, 1, 1), (1.0, 2, 2), (2.5, 3, 3)],
    ),
    "azure lmm 2025": (
        "azure",
        "wall time",
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.5,3,800,20\n",
        [(0.0, 800, 20)],
    ),
    "mooncake": (
        "mooncake",
        "ms",
        '{"timestamp": 27482, "input_length": 6955, "output_length": 52}\n'
        '{"timestamp": 30535, "input_length": 6472, "output_length": 26}\n',
        [(0.0, 6955, 52), (3.053, 6472, 26)],
    ),
    "mooncake keys in seconds": (
        "mooncake",
        "s",
        '{"timestamp": 1, "input_length": 5, "output_length": 6}\n'
        '{"timestamp": 2.25, "input_length": 7, "output_length": 8}\n',
        [(0.0, 5, 6), (1.25, 7, 8)],
    ),
    "bailian: whole seconds": (
        "bailian",
        "s",
        '{"chat_id": 0, "parent_chat_id": -1, "timestamp": 2.0, "input_length": 17, "output_length": 9, '
        '"type": "text", "turn": 1, "hash_ids": [5, 6]}\n'
        '{"chat_id": 1, "parent_chat_id": 0, "timestamp": 63, "input_length": 16, "output_length": 9, '
        '"type": "text", "turn": 2, "hash_ids": [5]}\n',
        [(0.0, 17, 9), (61.0, 16, 9)],
    ),
    "burstgpt: six columns": (
        "burstgpt",
        "s",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n",
        [(0.0, 472, 18), (40.0, 1087, 0)],
    ),
    "burstgpt: eight columns": (
        "burstgpt",
        "s",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        '5.5,12,0.75,"GPT-4, turbo",472,18,490,API log\n',
        [(0.0, 472, 18)],
    ),
    "vidur: whole floats": (
        "vidur",
        "s",
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374.0,44.0\n4.314579,396.0,109.0\n",
        [(0.0, 374, 44), (4.314579, 396, 109)],
    ),
    "splitwise": (
        "splitwise",
        "s",
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
        "0,2,0,0.5,1,100,10\n1,2,0,2.75,1,200,20\n",
        [(0.0, 100, 10), (2.25, 200, 20)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_format(tmp_path, case):
    name, unit, text, expected = CASES[case]
    trace = read_trace(write(tmp_path, text))
    assert (trace.info.format, trace.info.unit, trace.info.num_rows) == (name, unit, len(expected))
    assert rows(trace) == expected


PLAIN = AZURE + "2023-11-16 18:15:46,1,2\n2023-11-16 18:15:47,3,4\n"


WRAPPINGS = {
    "plain": PLAIN,
    "no newline at the end": PLAIN.rstrip("\n"),
    "crlf": PLAIN.replace("\n", "\r\n"),
    "byte-order mark": "\ufeff" + PLAIN,
    "blank lines": "\n\n" + PLAIN.replace("\n", "\n  \n\n"),
    "spaces": PLAIN.replace(",", " , "),
    "quotes": '"TIMESTAMP","ContextTokens","GeneratedTokens"\n"2023-11-16 18:15:46","1","2"\n2023-11-16 18:15:47,3,4',
    "gzip": gzip.compress(PLAIN.encode()),
    "two gzip members": gzip.compress(PLAIN[:60].encode()) + gzip.compress(PLAIN[60:].encode()),
    "latin-1 in a column nobody reads": PLAIN.replace("\n", ",Zo\xeb\n").replace("Zo\xeb", "User", 1).encode("latin-1"),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_wrapping(tmp_path, wrapping):
    trace = read_trace(write(tmp_path, WRAPPINGS[wrapping]))
    assert rows(trace) == [(0.0, 1, 2), (1.0, 3, 4)]
    assert trace.info.num_rows == 2
    assert not trace.info.rejected


def test_unsorted_rows_are_sorted_and_ties_keep_the_order_of_the_file(tmp_path):
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n5,1,1\n2,2,2\n5,3,3\n2,4,4\n"
    trace = read_trace(write(tmp_path, text))
    assert rows(trace) == [(0.0, 2, 2), (0.0, 4, 4), (3.0, 1, 1), (3.0, 3, 3)]
    assert trace.info.notices == ("rows were not in time order (2 came before the row above): sorted",)


def test_hashes_follow_their_rows(tmp_path):
    text = (
        '{"timestamp": 9, "input_length": 513, "output_length": 1, "hash_ids": [1, 2]}\n'
        '{"timestamp": 4, "input_length": 512, "output_length": 1, "hash_ids": [3]}\n'
        '{"timestamp": 5, "input_length": 512, "output_length": 1}\n'
    )
    trace = read_trace(write(tmp_path, text))
    assert trace.prefix_hashes == [(3,), (), (1, 2)]
    assert trace.prefix_block_size == 512


def test_no_hashes_is_not_empty_hashes(tmp_path):
    trace = read_trace(write(tmp_path, '{"timestamp": 9, "input_length": 513, "output_length": 1}'))
    assert trace.prefix_hashes is None
    assert trace.prefix_block_size is None


@pytest.mark.parametrize(
    ("case", "notice"),
    [
        ("mooncake", "timestamps are taken as ms, because all are whole numbers; trace_unit overrides this"),
        ("mooncake keys in seconds", "taken as s, because some have a fraction"),
        ("bailian: whole seconds", "taken as s, because the key chat_id is that of the bailian format"),
        ("burstgpt: six columns", "1 of 2 requests have 0 output tokens, which stands for a failed request"),
        ("azure lmm 2025", "columns not used: NumImages"),
    ],
)
def test_notices_say_what_was_taken_and_why(tmp_path, case, notice):
    assert notice in "\n".join(read_trace(write(tmp_path, CASES[case][2])).info.notices)


@pytest.mark.parametrize(
    ("case", "unit", "second_arrival_s"),
    [
        ("mooncake", "s", 3053.0),
        ("mooncake keys in seconds", "ms", 0.00125),
        ("vidur: whole floats", "ms", 0.004314579),
    ],
)
def test_trace_unit_overrides(tmp_path, case, unit, second_arrival_s):
    trace = read_trace(write(tmp_path, CASES[case][2]), trace_unit=unit)
    assert trace.arrival_s[1] == second_arrival_s
    assert trace.info.unit == unit


def test_trace_format_overrides(tmp_path):
    text = '{"timestamp": 7, "input_length": 32, "output_length": 1, "hash_ids": [1, 2]}'
    trace = read_trace(write(tmp_path, text), trace_format="bailian")
    assert (trace.info.unit, trace.prefix_block_size) == ("s", 16)


TICKS = 10**7


def wall(ticks, *, offset):
    seconds, fraction = divmod(ticks, TICKS)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"2024-05-10 {clock}" + (f".{fraction:07}" if fraction else "") + ("+00:00" if offset else "")


def json_row(time, prompt, output, extra=""):
    return f'{{"timestamp": {time}, "input_length": {prompt}, "output_length": {output}{extra}}}'


# Per format: header, one row from (ticks of 100 ns, prompt, output), and the ticks that one step of its time holds.
WRITERS = {
    "azure": (AZURE, lambda t, p, o: f"{wall(t, offset=p % 2)},{p},{o}", 1),
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
        lambda t, p, o: f"{t // TICKS},GPT-4,{p},{o},{p + o},API log",
        TICKS,
    ),
    "vidur": (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n",
        lambda t, p, o: f"{t // TICKS}.0,{p}.0,{o}.0",
        TICKS,
    ),
    "splitwise": (
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n",
        lambda t, p, o: f"1,2,0,{t // TICKS},1,{p},{o}",
        TICKS,
    ),
    "mooncake": ("", lambda t, p, o: json_row(t // 10**4, p, o), 10**4),
    "bailian": ("", lambda t, p, o: json_row(t // TICKS, p, o, ', "chat_id": 1'), TICKS),
}


@pytest.mark.parametrize("name", WRITERS)
@settings(deadline=None, max_examples=50)
@given(
    table=st.lists(
        st.tuples(st.integers(0, 86_399 * TICKS), st.integers(1, 10**9), st.integers(0, 10**9)), min_size=1, max_size=20
    )
)
def test_what_is_written_is_read(tmp_path_factory, name, table):
    header, line, step = WRITERS[name]
    path = write(tmp_path_factory.mktemp("trace"), header + "\n".join(line(*row) for row in table))
    times = [ticks // step * step for ticks, _, _ in table]
    order = sorted(range(len(table)), key=times.__getitem__)
    trace = read_trace(path)
    assert trace.info.format == name
    assert rows(trace) == [((times[i] - min(times)) / TICKS, table[i][1], table[i][2]) for i in order]


@settings(deadline=None, max_examples=50)
@given(times=st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_float_seconds_keep_every_digit(tmp_path_factory, times):
    times.sort()
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{time!r},1,1\n" for time in times)
    trace = read_trace(write(tmp_path_factory.mktemp("trace"), text))
    assert trace.arrival_s.tolist() == [time - times[0] for time in times]


def test_a_file_of_many_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("workload.rows.CHUNK_LINES", 7)
    monkeypatch.setattr("workload.readers.CHUNK_LINES", 7)
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{n},{n + 1},{n}\n" for n in range(100))
    assert rows(read_trace(write(tmp_path, text))) == [(n, n + 1, n) for n in range(100)]
