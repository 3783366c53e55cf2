"""Packaging. `pip install .` brings what running needs; extras bring tests, accelerators and tools."""

from setuptools import find_packages, setup

TEST = ["pytest>=8.0", "pytest-xdist>=3.5", "jaxtyping>=0.2.36", "beartype>=0.20", "ruff>=0.6"]
PARITY = ["torch>=2.4", "accelerate>=1.0"]

setup(
  name="rlvr_jax",
  version="0.1.0",
  description="Reinforcement learning with verifiable rewards in JAX: methods are functions, papers are configs.",
  long_description=open("README.md", encoding="utf-8").read(),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  python_requires=">=3.11",
  packages=find_packages(include=["rlvr_jax*", "configs*", "experiments*"]),
  include_package_data=True,
  install_requires=[
    "jax>=0.8",
    "flax>=0.12",
    "optax>=0.2.5",
    "orbax-checkpoint>=0.11.20",
    "transformers>=4.56",
    "jinja2>=3.1",
    "sentencepiece>=0.2",
    "tensorflow-datasets>=4.9.6",
    "importlib_resources>=6.0",
    "ml-collections>=1.0",
    "absl-py>=2.0",
    "numpy>=2.0",
    "jaxtyping>=0.2.36",
    "grain>=0.2.10",
    "array-record>=0.6",
    "pyarrow>=15.0",
    "reasoning-gym>=0.1.19",
    "math-verify[antlr4_13_2]>=0.8",
    "safetensors>=0.4",
    "gguf>=0.16",
    "rich>=13.0",
    "tensorboardX>=2.6",
    "matplotlib>=3.8",
    "scipy>=1.11",
  ],
  extras_require={
    "test": TEST,
    "parity": TEST + PARITY,
    "tpu": ["jax[tpu]>=0.8"],
    "gpu": ["jax[cuda12]>=0.8"],
    "notebooks": ["jupyterlab>=4.0", "ipywidgets>=8.0"],
    "dev": TEST + ["pre-commit>=3.0"],
  },
)
