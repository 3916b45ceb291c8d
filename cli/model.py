"""`baton model`: add a model to the catalogue."""

import argparse
from pathlib import Path

DESCRIPTION = "Describe a model to Baton from its Hugging Face config.json."
EXAMPLES = """examples:
  baton model import config.json --name my-model
  baton simulate steady-8b --set model=my-model
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    importing = actions.add_parser("import", help="write configs/models/NAME.yaml from a config.json")
    importing.add_argument("file", metavar="CONFIG_JSON")
    importing.add_argument("--name", required=True, help="what scenarios call it")
    importing.add_argument("--dir", default="configs", metavar="DIR", help="your configs folder (default: ./configs)")


def run(arguments: argparse.Namespace) -> int:
    from scenario.model_import import import_hf_config, write_model

    spec = import_hf_config(arguments.file, arguments.name)
    path = write_model(spec, Path(arguments.dir))
    print(
        f"{path}: {spec.total_params / 1e9:.2f} B parameters, {spec.weight_bytes / 1e9:.1f} GB of weights, "
        f"{spec.kv_bytes_per_token:,} B of KV per token"
    )
    return 0
