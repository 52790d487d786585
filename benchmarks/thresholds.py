"""What the threshold that `spacy train` chooses on dev is worth on test, beside the config's own.

python -m benchmarks.thresholds corpus/litbank results/thresholds_litbank.json --system piqn --system diffusion --steps 500
"""  # noqa: E501

import tempfile
from pathlib import Path
from typing import Annotated, Any, Dict, List

import spacy
import torch
import typer
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop

from benchmarks.harness import Stopwatch, write_output
from benchmarks.systems import CONFIGS, shipped_cnn
from spacy_nested_ner.cli.pipelines import read_examples
from spacy_nested_ner.evaluation.scores.fit_thresholds import scored_table
from spacy_nested_ner.evaluation.scores.own_thresholds import LOWEST
from spacy_nested_ner.evaluation.scores.thresholds import best_threshold, f_at


def main(
    corpus: Annotated[Path, typer.Argument(help="Folder with train, dev and test.spacy")],
    output: Annotated[Path, typer.Argument(help="JSON file")],
    system: Annotated[List[str], typer.Option(help="Of configs/SYSTEM_cnn.cfg; repeat")],
    steps: int = 500,
    dev_limit: Annotated[int, typer.Option(help="First dev docs; 0: all")] = 0,
    seed: int = 0,
) -> None:
    """Train each system by its config; strict F1 of model-last on test, from raw text."""
    if unknown := [name for name in system if not (CONFIGS / f"{name}_cnn.cfg").is_file()]:
        raise typer.BadParameter(f"There is no configs/{unknown[0]}_cnn.cfg.")
    torch.set_num_threads(1)
    settings = {"corpus": str(corpus), "steps": steps, "dev_limit": dev_limit, "seed": seed}
    systems = {}
    typer.echo("| system | at the config's threshold | at that chosen on dev | best on test |")
    typer.echo("|---|---|---|---|")
    for name in system:
        with tempfile.TemporaryDirectory() as folder:
            found = systems[name] = trained(name, corpus, Path(folder), steps, dev_limit, seed)
        cells = [f"{100 * found[key]['f']:.1f} ({found[key]['threshold']:.2f})" for key in COLUMNS]
        typer.echo(f"| {name} | {' | '.join(cells)} |")
        write_output(output, {"settings": settings, "systems": systems})


COLUMNS = ("default", "chosen", "best")


def trained(
    name: str, corpus: Path, folder: Path, steps: int, dev_limit: int, seed: int
) -> Dict[str, Any]:
    """One training and its scores."""
    config = shipped_cnn(name)
    config["paths"].update({part: str(corpus / f"{part}.spacy") for part in ("train", "dev")})
    config["training"]["max_steps"], config["system"]["seed"] = steps, seed
    config["corpora"]["dev"]["limit"] = dev_limit
    with Stopwatch() as watch:
        train_loop(init_nlp(config), folder)
    nlp = spacy.load(folder / "model-last")
    if "ner" not in nlp.meta["thresholds"]:
        raise typer.BadParameter(f"{name} finds nothing right on dev. Give more --steps.")
    dev = nlp.meta["thresholds"]["ner"]
    pipe: Any = nlp.get_pipe("ner")
    table = scored_table(nlp, pipe, read_examples(nlp, corpus / "test.spacy"), LOWEST)
    best = best_threshold(table, LOWEST)
    assert best is not None
    return {
        "cpu_minutes": watch.cpu / 60,
        "dev": dev,
        "default": {"threshold": dev["old_threshold"], "f": f_at(table, dev["old_threshold"])},
        "chosen": {"threshold": dev["threshold"], "f": f_at(table, dev["threshold"])},
        "best": best._asdict(),
    }


if __name__ == "__main__":
    typer.run(main)
