"""Whether runs are of the same code."""

from reporting.same_code import of_one_code
from tests.reporting.synthetic_records import as_read, make_record


def runs_with(*codes):
    """A run of each code, by seeds 1, 2, …"""
    records = [make_record(seed=seed) for seed in range(1, len(codes) + 1)]
    for record, code in zip(records, codes, strict=True):
        record["code"] |= code
    return [as_read(record) for record in records]


def test_code_is_the_same_where_no_file_that_two_runs_share_differs():
    one = {"files": {"run.py": "a", "digits.py": "b"}}
    more = {"files": {"run.py": "a", "digits.py": "b", "airline.py": "c"}}
    edited = {"files": {"run.py": "other"}}
    cases = [([one, one], True), ([one, more], True), ([one, more, edited], False)]
    wrong = [codes for codes, same in cases if of_one_code(runs_with(*codes)) is not same]
    assert not wrong
    assert of_one_code([])
