"""`python -m spacy nested-ner ...`: loaded by spaCy's command line through `spacy_cli`.

Imports as little as possible: spaCy loads this for each of its commands.
"""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import typer
from spacy.cli._util import app

from spacy_nested_ner.cli._formats import FormatsCommand
from spacy_nested_ner.cli.adapt import adapt_cli
from spacy_nested_ner.cli.analyze import analyze_cli
from spacy_nested_ner.cli.annotate import annotate_cli
from spacy_nested_ner.cli.card import card_cli
from spacy_nested_ner.cli.compare import compare_cli
from spacy_nested_ner.cli.compress import compress_cli
from spacy_nested_ner.cli.convert import convert_cli
from spacy_nested_ner.cli.demo import demo_cli
from spacy_nested_ner.cli.evaluate import evaluate_cli
from spacy_nested_ner.cli.export import export_cli
from spacy_nested_ner.cli.init import init_cli
from spacy_nested_ner.cli.inspect import inspect_cli
from spacy_nested_ner.cli.output import plain_output
from spacy_nested_ner.cli.pick import pick_cli
from spacy_nested_ner.cli.predict import predict_cli
from spacy_nested_ner.cli.teach import teach_cli
from spacy_nested_ner.cli.threshold import threshold_cli
from spacy_nested_ner.cli.vectors import vectors_cli
from spacy_nested_ner.cli.visualize import visualize_cli

nested_ner_cli = typer.Typer(
    name="nested-ner",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@nested_ner_cli.callback()
def before_each_command(ctx: typer.Context) -> None:
    """Corpora, numbers and pages for nested named entities."""
    ctx.with_resource(plain_output())


nested_ner_cli.command("adapt")(adapt_cli)
nested_ner_cli.command("analyze")(analyze_cli)
nested_ner_cli.command("annotate")(annotate_cli)
nested_ner_cli.command("card")(card_cli)
nested_ner_cli.command("compare")(compare_cli)
nested_ner_cli.command("compress")(compress_cli)
nested_ner_cli.command("convert", cls=FormatsCommand)(convert_cli)
nested_ner_cli.command("demo")(demo_cli)
nested_ner_cli.command("evaluate")(evaluate_cli)
nested_ner_cli.command("export", cls=FormatsCommand)(export_cli)
nested_ner_cli.command("init")(init_cli)
nested_ner_cli.command("inspect")(inspect_cli)
nested_ner_cli.command("pick")(pick_cli)
nested_ner_cli.command("predict")(predict_cli)
nested_ner_cli.command("teach")(teach_cli)
nested_ner_cli.command("threshold")(threshold_cli)
nested_ner_cli.command("vectors")(vectors_cli)
nested_ner_cli.command("visualize")(visualize_cli)
app.add_typer(nested_ner_cli)

__all__ = ["nested_ner_cli"]
