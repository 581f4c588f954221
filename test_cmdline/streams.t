A dash is standard input or standard output.

  $ awk 'BEGIN { for (i = 1; i <= 100000; i++) print i }' > numbers
  $ blpk compress numbers
  $ blpk compress - - < numbers > piped.blp
  $ cat numbers | blpk c - | blpk d - - | cmp - numbers
  $ blpk d - - < piped.blp | cmp - numbers
  $ blpk d piped.blp - | cmp - numbers
  $ cat piped.blp | blpk info - | head -n 2
  kind:       bytes
  format:     blp 3

Into a file the true numbers are filled in at the end.

  $ cat numbers | blpk c - counted.blp
  $ blpk info counted.blp | grep nchunks
  nchunks:    1
  $ blpk d counted.blp - | cmp - numbers

Messages stay out of the data.

  $ blpk -v c numbers - 2> said | blpk d - - | cmp - numbers
  $ grep -c blpk: said > /dev/null && echo said elsewhere
  said elsewhere

What is appended may come from standard input.

  $ cat numbers | blpk append numbers.blp -
  $ cat numbers numbers > twice
  $ blpk d numbers.blp - | cmp - twice
  $ blpk append - numbers < piped.blp
  blpk: error: a file to append to can't be standard input
  [2]

A closed pipe ends it quietly.

  $ blpk d numbers.blp - | head -n 2
  1
  2

Metadata may go to a file of their own, or to standard output.

  $ echo '{"unit": "m"}' > unit.json
  $ blpk c -m unit.json numbers with-unit.blp
  $ blpk d --metadata-to - with-unit.blp plain
  {
   "unit": "m"
  }
  $ blpk -f d --metadata-to m.json with-unit.blp plain
  $ cat m.json
  {
   "unit": "m"
  }
  $ blpk metadata with-unit.blp
  {
    "unit": "m"
  }
  $ blpk metadata --update 'unit="km"' --update n=3 with-unit.blp
  $ blpk metadata --compact with-unit.blp
  {"n":3,"unit":"km"}
  $ blpk verify with-unit.blp
  with-unit.blp: ok (1 chunk, 575.09K)

Both can't go there, under whatever name.

  $ blpk d --metadata-to /dev/stdout with-unit.blp - | cat
  blpk: error: metadata and data can't both be '/dev/stdout'
  $ blpk -f d --metadata-to /dev/stdout with-unit.blp plain | cat
  {
   "unit": "km",
   "n": 3
  }

What is changed in place has a name.

  $ blpk metadata --update n=4 - < with-unit.blp
  blpk: error: a file to change can't be standard input
  [2]
  $ blpk metadata --set unit.json /dev/stdin < with-unit.blp
  blpk: error: a file to change can't be standard input
  [2]
  $ blpk metadata --compact - < with-unit.blp
  {"n":3,"unit":"km"}

Only the part that is asked for.

  $ blpk cat --bytes 10:20 numbers.blp | od -c | head -n 2
  0000000   6  \n   7  \n   8  \n   9  \n   1   0
  0000012
