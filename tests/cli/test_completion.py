"""What Tab offers, asked of a real bash."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cli.completion import SHELLS
from cli.main import COMMANDS, main


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for name in ("runs", "notes"):
        (folder / name).mkdir()
    (folder / "trace.csv").touch()
    with pytest.MonkeyPatch.context() as patch, (folder / "baton.bash").open("w") as file:
        patch.setattr("sys.stdout", file)
        assert main(["completion", "bash"]) == 0
    return folder / "baton.bash"


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("baton com", ["compare", "completion"]),
        ("baton simulate de", ["demo"]),
        ("baton simulate tr", ["trace.csv"]),
        ("baton replay demo --ui", ["--ui", "--ui-port"]),
        ("baton view r", ["runs"]),
        ("baton compare runs n", ["notes"]),
        ("baton simulate demo --on-too-long t", ["truncate"]),
        ("baton study st", ["stall", "steptime"]),
        ("baton trace ", ["info"]),
    ],
)
def test_tab(line: str, offers: list[str], script: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    words = line.split(" ")
    program = f"""
        source {script}
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1}
        _shtab_baton
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", program], cwd=script.parent, capture_output=True, text=True)
    found = [
        one for one in dict.fromkeys(done.stdout.split()) if one.startswith(words[-1]) and one not in ("-h", "--help")
    ]
    assert sorted(found) == offers, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    told = capsys.readouterr().out
    assert [command for command in COMMANDS if command not in told] == []
