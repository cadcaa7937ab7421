"""Words in place of names in the records, as conf/reporting/words.yaml has them."""

import re

from reporting.records.declaration import SETTINGS
from reporting.records.yaml_files import read_yaml

_WORDS = read_yaml(SETTINGS / "words.yaml")
_NAMES = re.compile(
    rf"(?<![\w/=.`])(?:{'|'.join(map(re.escape, sorted(_WORDS, key=len, reverse=True)))})(?![\w/=`]|\.\w)"
)


def in_words(text: str) -> str:
    return _NAMES.sub(lambda found: _WORDS[found[0]], text)
