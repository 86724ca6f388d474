"""A program that loads tokenizers without this package, and prints their ids, decoded texts and
special tokens.
"""

WITHOUT_PACKAGE = """
import json, sys
sys.modules["vanilla_transformer"] = None  # importing it is an error now
from transformers import AutoTokenizer
texts = json.loads(sys.argv[1])
for folder in sys.argv[2:]:
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    ids = tokenizer(texts)["input_ids"]
    special = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id]
    decoded = tokenizer.batch_decode(ids, skip_special_tokens=True)
    print(json.dumps([ids, decoded, special, tokenizer.model_input_names]))
"""
