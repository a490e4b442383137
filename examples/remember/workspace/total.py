"""Sum the last field of every line: total.py FILE --fields comma|tab|semicolon --decimal point|comma."""

import argparse
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path

MARKS = {"comma": ",", "tab": "\t", "semicolon": ";", "point": "."}

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--fields", choices=["comma", "tab", "semicolon"], required=True)
parser.add_argument("--decimal", choices=["point", "comma"], required=True)
told = parser.parse_args()

total = Decimal(0)
for number, line in enumerate(Path(told.file).read_text("utf-8").splitlines(), 1):
    fields = line.split(MARKS[told.fields])
    try:
        if len(fields) != 3:
            raise ValueError(f"{len(fields)} fields, not 3")
        total += Decimal(fields[-1].replace(MARKS[told.decimal], "."))
    except (ValueError, InvalidOperation) as error:
        sys.exit(f"{told.file}:{number}: cannot be read so: {error}")
print(total)
