"""Every fault of a file and of a row: refused with one sentence, or skipped and counted."""

import gzip

import pytest

from cluster.errors import ConfigError, TraceError
from workload.readers import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
TIME = "2023-11-16 18:15:46"


def write(folder, text):
    path = folder / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def mooncake(timestamp="1", prompt="600", output="3", hashes="[1, 2]"):
    fields = {"timestamp": timestamp, "input_length": prompt, "output_length": output, "hash_ids": hashes}
    return "{" + ", ".join(f'"{key}": {value}' for key, value in fields.items() if value) + "}"


# (header, faulty line, reason it is counted by, what the message says)
ROW_FAULTS = [
    (AZURE, ",3,4", "TIMESTAMP missing", "TIMESTAMP is missing"),
    (AZURE, "soon,3,4", "TIMESTAMP not a time", "TIMESTAMP is 'soon', not a time like 2023-11-16 18:15:46.680590"),
    (AZURE, "now,3,4", "TIMESTAMP not a time", "TIMESTAMP is 'now', not a time"),
    (AZURE, "2023-11-16,3,4", "TIMESTAMP not a time", "TIMESTAMP is '2023-11-16', not a time"),
    (AZURE, "2023-02-30 00:00:00,3,4", "TIMESTAMP not a time", "TIMESTAMP is '2023-02-30 00:00:00', not a time"),
    (AZURE, "2500-01-01 00:00:00,3,4", "TIMESTAMP not a time", "TIMESTAMP is '2500-01-01 00:00:00', not a time"),
    (AZURE, f"{TIME},,4", "ContextTokens missing", "ContextTokens is missing"),
    (AZURE, f"{TIME},nan,4", "ContextTokens not finite", "ContextTokens is nan, not a finite number"),
    (AZURE, f"{TIME},inf,4", "ContextTokens not finite", "ContextTokens is inf, not a finite number"),
    (AZURE, f"{TIME},-3,4", "ContextTokens below 1", "ContextTokens is -3; it must be at least 1"),
    (AZURE, f"{TIME},0,4", "ContextTokens below 1", "ContextTokens is 0; it must be at least 1"),
    (AZURE, f"{TIME},3.5,4", "ContextTokens not whole", "ContextTokens is 3.5, not a whole number of tokens"),
    (AZURE, f"{TIME},1e30,4", "ContextTokens too large", "ContextTokens is 1e30, more than 1,000,000,000 tokens"),
    (AZURE, f"{TIME},many,4", "ContextTokens not a number", "ContextTokens is 'many', not a number"),
    (AZURE, f"{TIME},3,-1", "GeneratedTokens below 0", "GeneratedTokens is -1; it must be at least 0"),
    (AZURE, f"{TIME},3,", "GeneratedTokens missing", "GeneratedTokens is missing"),
    (AZURE, f"{TIME},3", "ragged row", "the row has 2 fields and the header 3"),
    (AZURE, f"{TIME},3,4,5", "ragged row", "the row has 4 fields and the header 3"),
    (AZURE, f'{TIME},"3,4', "ragged row", "the row has 2 fields and the header 3"),
    (VIDUR, ",3,4", "arrived_at missing", "arrived_at is missing"),
    (VIDUR, "NaN,3,4", "arrived_at not finite", "arrived_at is NaN, not a finite number"),
    (VIDUR, "inf,3,4", "arrived_at not finite", "arrived_at is inf, not a finite number"),
    (VIDUR, "-0.5,3,4", "arrived_at below 0", "arrived_at is -0.5; it must be at least 0"),
    ("", mooncake(timestamp=""), "timestamp missing", "timestamp is missing"),
    ("", mooncake(timestamp="null"), "timestamp missing", "timestamp is missing"),
    ("", mooncake(timestamp='"noon"'), "timestamp not a number", "timestamp is 'noon', not a number"),
    ("", mooncake(timestamp="true"), "timestamp not a number", "timestamp is 'True', not a number"),
    ("", mooncake(output=""), "output_length missing", "output_length is missing"),
    ("", mooncake(prompt="0", hashes=""), "input_length below 1", "input_length is 0; it must be at least 1"),
    ("", mooncake(prompt="[600]"), "input_length not a number", "input_length is '[600]', not a number"),
    (
        "",
        mooncake(hashes="[1]"),
        "hash_ids count wrong",
        "hash_ids has 1 entries, but 600 prompt tokens in blocks of 512 make 2",
    ),
    ("", mooncake(hashes='["a", "b"]'), "hash_ids not a list", "hash_ids is not a list of whole numbers"),
    ("", mooncake(hashes="7"), "hash_ids not a list", "hash_ids is not a list of whole numbers"),
    ("", '{"timestamp": 1,', "bad JSON", "the line is not valid JSON ("),
    ("", mooncake(timestamp="NaN"), "bad JSON", "the line is not valid JSON ("),
    ("", "[1, 2]", "not an object", "the line is a JSON list, not an object"),
]
GOOD_ROW = {AZURE: f"{TIME},3,4", VIDUR: "1,3,4", "": mooncake()}


@pytest.mark.parametrize(("header", "line", "reason", "what"), ROW_FAULTS)
def test_a_faulty_row_is_refused_by_line(tmp_path, header, line, reason, what):
    good = GOOD_ROW[header]
    path = write(tmp_path, f"{header}{good}\n\n{line}\n{good}\n{line}\n")
    with pytest.raises(TraceError) as error:
        read_trace(path)
    message = str(error.value)
    assert message.startswith(f"{path}:{3 + bool(header)}: {what}")
    assert message.endswith("; correct the row, or leave such rows out with --skip-invalid")


@pytest.mark.parametrize(("header", "line", "reason", "what"), ROW_FAULTS)
def test_a_faulty_row_is_skipped_and_counted(tmp_path, header, line, reason, what):
    good = GOOD_ROW[header]
    path = write(tmp_path, f"{header}{good}\n\n{line}\n{good}\n{line}\n")
    trace = read_trace(path, skip_invalid=True)
    assert trace.prompt_tokens.tolist() == read_trace(write(tmp_path, f"{header}{good}\n{good}")).prompt_tokens.tolist()
    assert trace.info.num_rows == 4
    assert trace.info.rejected == {reason: 2}
    assert [example.split(": ")[0] for example in trace.info.rejected_examples] == [
        f"{path}:{number + bool(header)}" for number in (3, 5)
    ]
    assert "2 of 4 rows are left out as invalid" in trace.info.notices


def test_a_row_with_a_fault_of_each_kind_counts_once_and_few_are_listed(tmp_path):
    path = write(tmp_path, VIDUR + "1,2,3\n" + "-1,0,x\n" * 8 + "2,0,1\n")
    trace = read_trace(path, skip_invalid=True)
    assert trace.info.rejected == {"arrived_at below 0": 8, "num_prefill_tokens below 1": 1}
    assert len(trace.info.rejected_examples) == 5


def test_a_faulty_first_line_of_json_is_skipped_too(tmp_path):
    trace = read_trace(write(tmp_path, '{"timestamp": \n' + mooncake()), skip_invalid=True)
    assert (len(trace), trace.info.rejected) == (1, {"bad JSON": 1})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty; give a trace with a header or JSON objects"),
        ("\n \n", "the file is empty"),
        (gzip.compress(b""), "the file is empty"),
        (AZURE, "the file has a header but no rows"),
        (AZURE + "\n\n", "the file has a header but no rows"),
        (b"PK\x03\x04\x00\x00" + bytes(range(256)), "this is not text; give a CSV or JSON Lines file"),
        (bytes(range(128, 256)), "this is not UTF-8 text"),
        (gzip.compress(AZURE.encode() * 9)[:-9], "the gzip data is damaged"),
        (b"\x1f\x8b\x08 no gzip after all", "the gzip data is damaged"),
        ("x" * 200_000, "a line cannot be read as CSV (field larger than field limit"),
        (f"[{mooncake()}]", "this is a JSON array; write one object per line"),
        ('{"timestamp":\n 1}', ":1: the line is not valid JSON"),
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "this is a Git LFS pointer, not the trace; fetch the file itself with git lfs pull",
        ),
        ("a,b\n1,2\n", "columns 'a', 'b' match no known trace format (azure: TIMESTAMP, ContextTokens, Generated"),
        ("a,b\n1,2\n", "; rename the columns to those of one of them"),
        (
            "TIMESTAMP,ContextToken,Generated Tokens\n",
            "nearest is azure, which lacks ContextTokens (is it 'ContextToken'?), "
            "GeneratedTokens (is it 'Generated Tokens'?)",
        ),
        (",".join(f"c{n}" for n in range(20)), "'c11' and 8 more match no"),
        ('{"timestamp": 1, "input_len": 5}', "nearest is mooncake, which lacks input_length (is it 'input_len'?)"),
        (
            "timestamp,input_length,output_length\n1,2,3\n",
            "columns 'timestamp', 'input_length', 'output_length' are those of mooncake, which is jsonl and not csv",
        ),
    ],
)
def test_a_file_that_is_no_trace(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_with_no_usable_row(tmp_path):
    with pytest.raises(TraceError, match=r"none of the 2 rows can be used \(arrived_at missing: 2\), like .*:2: arri"):
        read_trace(write(tmp_path, VIDUR + ",1,1\n,2,2\n"), skip_invalid=True)


def test_no_file_and_a_directory(tmp_path):
    with pytest.raises(TraceError, match=r"none\.csv: there is no such file; check the path"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="this is a directory; name the trace file in it"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"trace_format": "azur"}, ConfigError, r"trace_format is 'azur'; use one of azure, .*did you mean azure\?"),
        ({"trace_format": "x"}, ConfigError, "leave it out to detect the format"),
        ({"trace_format": "vidur"}, TraceError, "trace_format vidur needs column arrived_at, num_prefill_tokens"),
        ({"trace_format": "mooncake"}, TraceError, "trace_format mooncake is a jsonl file, this is csv"),
        ({"trace_unit": "us"}, ConfigError, "trace_unit is 'us'; use s or ms"),
        ({"trace_unit": "s"}, ConfigError, "trace_unit is s while .* gives TIMESTAMP as wall time; leave"),
    ],
)
def test_options_that_do_not_fit_the_file(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        read_trace(write(tmp_path, f"{AZURE}{TIME},1,1\n"), **options)
