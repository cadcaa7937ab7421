"""From the text of tweets to rows of token numbers."""

import pytest

from experiments.data.text import Vocabulary, filled_lines_of, letter_tokens, lines_of, tweet_tokens


def test_tokens_are_lower_case_lemmas_with_handles_links_and_negations_whole():
    tweet = "@United WASN'T my Flights' bags &amp; didn't #LoveIt &lt3 http://t.co/Ab1 delayed"

    (tokens,) = tweet_tokens([tweet])

    assert {"@united", "wasn't", "flight", "bag", "&", "didn't", "#loveit", "<3"} <= set(tokens)
    assert tokens[-2:] == ["http://t.co/ab1", "delay"]


def test_vocabulary_is_ordered_by_frequency_then_alphabet_without_rare_tokens():
    every, frequent = (Vocabulary([["b", "c"], ["a", "c"]], minimum_count=least) for least in (1, 2))
    assert len(every) == 5
    assert every.encode([["c", "a", "b"], ["z"], []], max_length=3).tolist() == [[2, 3, 4], [1, 0, 0], [0, 0, 0]]
    assert frequent.encode([["c", "a", "c"]], max_length=2).tolist() == [[2, 1]]  # a long tweet is cut


def test_only_a_newline_ends_a_line_of_a_users_text():
    content = "\ufefffirst\r\n\r\n  \n second \x85 half\u2028end\nlast".encode()
    assert lines_of(content) == ["first", "", "", "second \x85 half\u2028end", "last"]
    assert filled_lines_of(content) == ["first", "second \x85 half\u2028end", "last"]
    assert filled_lines_of(b"") == []
    with pytest.raises(ValueError, match=r"^not a text in UTF-8: byte 0xe9 in line 2$"):
        lines_of(b"\xef\xbb\xbf\ncaf\xe9")


def test_letter_tokens_are_words_of_letters_with_or_without_lemmas_and_stop_words():
    tweet = ["The flights weren&amp;t late@JFK, 2 bags lost!!"]
    assert letter_tokens(tweet, lemmas=False, stop_words=True) == [
        ["the", "flights", "weren", "t", "late", "jfk", "bags", "lost"]
    ]
    assert letter_tokens(tweet, lemmas=True, stop_words=False) == [["flight", "be", "t", "late", "jfk", "bag", "lose"]]
