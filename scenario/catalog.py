"""Names of bundled and of the user's own models, GPUs, links, SLOs and scenarios, and the files behind them."""

import os
from pathlib import Path

import configs
from cluster.errors import ConfigError
from cluster.suggestion import did_you_mean

BUNDLED = Path(configs.__file__).absolute().parent
KINDS = ("models", "gpus", "links", "slos", "scenarios")
SUFFIXES = (".yaml", ".yml")


def config_folders(base: Path) -> list[Path]:
    """Folders with a subfolder per kind, for a file in `base`; the first that knows a name wins.

    `configs` in `base`, the folder that `base` is a kind's subfolder of, `configs` in the current folder,
    $BATON_CONFIGS, and what is bundled.
    """
    folders = [base / "configs"]
    if base.name in KINDS:
        folders.append(base.parent)
    folders.append(Path.cwd() / "configs")
    own = os.environ.get("BATON_CONFIGS")
    if own:
        if not Path(own).is_dir():
            raise ConfigError(f"BATON_CONFIGS is {own!r}, which is no folder; unset it or create the folder")
        folders.append(Path(own))
    return [*(folder for folder in folders if folder != BUNDLED), BUNDLED]


def names(kind: str, base: Path) -> list[str]:
    """Names known from `base`, in order; `kind` is one of KINDS."""
    found = {file.stem for root in config_folders(base) for file in (root / kind).glob("*") if file.suffix in SUFFIXES}
    return sorted(found)


def find(kind: str, name: str, base: Path) -> Path:
    """The file behind a name; ConfigError suggests the nearest known names."""
    for root in config_folders(base):
        for suffix in SUFFIXES:
            file = root / kind / (name + suffix)
            if file.is_file():
                return file
    raise ConfigError(f"there is no {kind[:-1]} named {name!r}; {did_you_mean(name, names(kind, base))}")


def is_path(reference: str) -> bool:
    """Whether a reference is a file rather than a name: it ends in .yaml or .yml, or has a separator in it."""
    return reference.endswith(SUFFIXES) or "/" in reference or os.sep in reference


def locate(kind: str, reference: str, base: Path) -> Path:
    """The file behind a name, or behind a path, which is relative to `base`."""
    if is_path(reference):
        return base / Path(reference).expanduser()
    return find(kind, reference, base)
