"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated, List, Optional

import typer

ModelArg = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder or package name of a pipeline")
]
ModelsArg = Annotated[
    Optional[List[str]],
    typer.Argument(
        metavar="MODEL", help="Folders or package names of pipelines", show_default=False
    ),
]
DataArg = Annotated[
    Optional[Path],
    typer.Argument(metavar="DATA", help="Gold data, .spacy file or folder", show_default=False),
]
TrainArg = Annotated[
    Path, typer.Argument(metavar="TRAIN", help="Training data, .spacy file or folder")
]
GoldArg = Annotated[Path, typer.Argument(metavar="DATA", help="Gold data, .spacy file or folder")]
TEXT_FILES = ".parquet, .jsonl, .csv, .txt (one text per line) or .spacy file, or a folder"
TextsArg = Annotated[Path, typer.Argument(metavar="TEXTS", help=f"A {TEXT_FILES}")]
SpansKeyOpt = Annotated[str, typer.Option(help="Key of the entities in doc.spans")]
LangOpt = Annotated[str, typer.Option(help="Language of the tokenizer")]
GpuOpt = Annotated[int, typer.Option("--gpu-id", "-g", help="GPU ID or -1 for CPU")]
WithoutOpt = Annotated[
    Optional[List[Path]],
    typer.Option(
        help="Leave out texts that this .spacy file or folder has, such as annotated ones "
        "(repeatable)",
        show_default=False,
    ),
]
VectorsOpt = Annotated[
    Optional[str],
    typer.Option(
        help="For a CNN: folder or package name of a pipeline whose static vectors it reads beside "
        "its own features",
        show_default=False,
    ),
]
TextOpt = Annotated[str, typer.Option("--text", metavar="COLUMN", help="Column with the texts")]


def _imported(code: Optional[Path]) -> Optional[Path]:
    from spacy.cli._util import import_code

    import_code(code)
    return code


CodeOpt = Annotated[
    Optional[Path],
    typer.Option(
        "--code",
        callback=_imported,
        help="Python file with registered functions that the pipeline needs; imported first",
        show_default=False,
    ),
]
