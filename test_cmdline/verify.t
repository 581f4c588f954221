Checking files.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ blpk c -z 1K -l 0 numbers
  $ blpk verify numbers.blp
  numbers.blp: ok (4 chunks, 3.8K)

Damage is named, and the exit code is 3.

  $ { head -c 1500 numbers.blp; printf '!'; tail -c +1502 numbers.blp; } > damaged.blp
  $ blpk verify damaged.blp
  damaged.blp: damaged (3 of 4 chunks, 2.8K good)
    error: Checksum mismatch * (section 'chunks', chunk 1, byte 1428, plain bytes 1024 to 2048) (glob)
  [3]
  $ head -c 2000 numbers.blp > short.blp
  $ blpk verify short.blp
  short.blp: damaged (1 of 4 chunks, 1.0K good)
    error: the file ends too early: * (section 'chunks', chunk 1, byte 1428, plain bytes 1024 to 2048); chunks 2 to 3 are missing (plain bytes 2048 to 3893) (glob)
  [3]

Several files are checked whatever is found; -q shows only those that are not sound.

  $ blpk v numbers.blp damaged.blp numbers.blp | grep -v error
  numbers.blp: ok (4 chunks, 3.8K)
  damaged.blp: damaged (3 of 4 chunks, 2.8K good)
  numbers.blp: ok (4 chunks, 3.8K)
  $ blpk -q verify numbers.blp
  $ blpk verify numbers.blp numbers 2> errors
  numbers.blp: ok (4 chunks, 3.8K)
  [1]
  $ head -n 1 errors
  blpk: error: the magic marker b'blpk' is missing * (glob)

What harms nobody is a note.

  $ blpk -f c -o -k None -l 0 numbers
  $ blpk verify numbers.blp
  numbers.blp: ok (1 chunk, 3.8K)
    note: there are no digests: * (section 'header', byte 6) (glob)

For programs there is JSON.

  $ blpk verify --json numbers.blp damaged.blp > report
  [3]
  $ python3 -c 'import json; print([r["ok"] for r in json.load(open("report"))])'
  [True, False]

  $ rm damaged.blp errors numbers numbers.blp report short.blp
  $ ls -A
