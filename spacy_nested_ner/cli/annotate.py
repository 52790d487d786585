"""`nested-ner annotate`: the entities of many texts as a folder of Parquet files."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Dict, List, Optional

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import TEXT_FILES, CodeOpt, GpuOpt, ModelArg, SpansKeyOpt, TextOpt
from spacy_nested_ner.cli.output import failing
from spacy_nested_ner.cli.pipelines import NOT_REGISTERED, UNKNOWN
from spacy_nested_ner.cli.texts import SHOWN, counted, files_to_read, some

if TYPE_CHECKING:
    from spacy_nested_ner.scale.inputs import Columns, Fragment
    from spacy_nested_ner.scale.workers import Job

InputArg = Annotated[Path, typer.Argument(metavar="INPUT", help=f"A {TEXT_FILES}")]
OutputArg = Annotated[Path, typer.Argument(metavar="OUTPUT", help="The folder to write")]
WorkersOpt = Annotated[int, typer.Option(min=1, help="Processes; each loads the pipeline")]
ResumeOpt = Annotated[
    bool, typer.Option("--resume", help="Continue an interrupted run: do only what is missing")
]
IdOpt = Annotated[
    Optional[str],
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column with the ids (default: id if there is one, else file and row)",
    ),
]
LimitOpt = Annotated[
    int, typer.Option(min=0, help="Annotate only this many texts, from the first; 0 for all")
]
DetailsOpt = Annotated[
    bool, typer.Option("--details", help="Also write the text and depth of each entity")
]
BatchOpt = Annotated[
    int, typer.Option(min=1, help="Texts per batch of the pipeline; fewer if they are long")
]
INTERRUPTED = 130
FIRST_IDS = 1000  # of a file, looked at before anything is annotated


def annotate_cli(
    model: ModelArg,
    input_path: InputArg,
    output_path: OutputArg,
    workers: WorkersOpt = 1,
    resume: ResumeOpt = False,
    text: TextOpt = "text",
    id_column: IdOpt = None,
    spans_key: SpansKeyOpt = "sc",
    limit: LimitOpt = 0,
    details: DetailsOpt = False,
    batch_size: BatchOpt = 250,
    gpu_id: GpuOpt = -1,
    code: CodeOpt = None,
) -> None:
    """Find the entities of many texts in worker processes, and write them as Parquet files.

    The exit code is 0 if every text has its row, with its entities or with an error; 1 if rows are
    missing or all have an error; 130 after Ctrl-C. --resume completes the missing rows.
    """
    from spacy_nested_ner.scale.annotator import Annotator
    from spacy_nested_ner.scale.inputs import Columns, cut
    from spacy_nested_ner.scale.outputs import begin, manifest_of
    from spacy_nested_ner.scale.rows import import_arrow
    from spacy_nested_ner.scale.workers import Job

    columns = Columns(text, id_column)
    with failing("Cannot annotate the texts. Nothing was written."):
        import_arrow()
        annotator = Annotator(
            model, spans_key=spans_key, batch_size=batch_size, details=details, gpu_id=gpu_id
        )
        fragments = list(cut(files_to_read(input_path, output_path), columns, limit))
        if not fragments:
            raise ValueError(f"{input_path} holds no texts.")
        _check_ids(fragments, columns)
        begin(output_path, manifest_of(annotator, columns, limit, fragments, code), resume)
    _run(Job(annotator, columns, output_path, code), fragments, workers)


def _check_ids(fragments: "List[Fragment]", columns: "Columns") -> None:
    """Warn of an id that comes again among the first ones of the files, as where each counts its
    texts anew. To compare all ids would be a sort of the whole input."""
    from spacy_nested_ner.scale.inputs import read

    known = set()
    for fragment in [each for each in fragments if not each.first][:SHOWN]:
        try:
            batches = read(fragment, columns, size=FIRST_IDS)
            names = (name for ids, _ in batches for name in ids)
            first = list(islice(names, FIRST_IDS))
        except (ValueError, OSError):  # a worker that reads it will say so
            continue
        for name in first:
            if name in known:
                msg.warn(
                    f"Several texts have the id {name!r}. Joining rows by id would mix the "
                    "entities of different texts."
                )
                return
            known.add(name)


def _run(job: "Job", fragments: "List[Fragment]", workers: int) -> None:
    """Do what is not there yet, and say what became of it."""
    from spacy_nested_ner.scale.outputs import failed_in, first_error, is_whole, withdraw
    from spacy_nested_ner.scale.workers import WorkersFail, run

    whole = {each for each in fragments if is_whole(job.folder, each)}
    todo = [each for each in fragments if each not in whole]
    rows, left = (sum(each.rows for each in part) for part in (fragments, todo))
    lost: Dict[str, str] = {}
    with closing(_Progress(rows, rows - left)) as progress:
        progress.failed = sum(failed_in(job.folder, each) for each in whole)
        try:
            lost = run(job, todo, workers, progress.add)
        except KeyboardInterrupt:
            progress.close()
            is_any = any(is_whole(job.folder, each) for each in fragments)
            have = (
                f"The fragments in {job.folder} are complete: continue with --resume."
                if is_any
                else f"No fragment in {job.folder} is complete yet: --resume starts from the first."
            )
            msg.warn(f"Interrupted. {have}")
            raise typer.Exit(INTERRUPTED) from None
        except (WorkersFail, OSError) as err:
            progress.close()
            is_undone = isinstance(err, WorkersFail) and withdraw(job.folder)
            then = (
                "Nothing was written."
                if is_undone
                else "Fix the problem and continue with --resume."
            )
            remedy = f" {NOT_REGISTERED}" if UNKNOWN.search(str(err)) else ""
            msg.fail(f"Cannot annotate the texts. {then}{remedy}", str(err))
            raise typer.Exit(1) from None
    if rows and progress.failed == rows:
        error = first_error(job.folder, next(each for each in fragments if each.rows))
        msg.fail("Every text has an error in its row instead of entities.", error, exits=1)
    if progress.failed:
        have = "has an error in its row" if progress.failed == 1 else "have an error in their rows"
        msg.warn(f"{counted(progress.failed)} {have} instead of entities.")
    if lost:
        missing = "1 fragment is" if len(lost) == 1 else f"{len(lost)} fragments are"
        msg.fail(f"{missing} missing. Continue with --resume.")
        msg.text(some([f"{name}: {reason}" for name, reason in lost.items()], "\n"))
        raise typer.Exit(1)
    msg.good(f"Wrote the entities of {counted(rows)} to {job.folder}")


class _Progress:
    """A bar of texts, with words per second and the time left."""

    def __init__(self, total: int, done: int) -> None:
        from tqdm import tqdm

        self.words = self.failed = 0
        # Also where there is no terminal: a run of hours is watched in its log.
        self.bar = tqdm(total=total, initial=done, unit=" texts", mininterval=0.5)

    def add(self, texts: int, words: int, failed: int) -> None:
        self.words += words
        self.failed += failed
        seconds = self.bar.format_dict["elapsed"]
        self.bar.set_postfix_str(f"{self.words / max(seconds, 1e-3):.0f} words/s", refresh=False)
        self.bar.update(texts)

    def close(self) -> None:
        self.bar.close()
