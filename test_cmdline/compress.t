Compressing and decompressing a file.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers

The output has the name of the input and '.blp'; a success says nothing.

  $ blpk compress numbers
  $ ls
  numbers
  numbers.blp
  $ head -c 5 numbers.blp | od -An -c
     b   l   p   k 003

Decompressing takes the '.blp' off again.

  $ mv numbers original
  $ blpk decompress numbers.blp
  $ cmp numbers original

Both verbs have a short name and take a name for the output.

  $ blpk c numbers small.blp
  $ cmp small.blp numbers.blp
  $ blpk d small.blp back
  $ cmp back original

The input stays as it was, and there is no other file.

  $ ls -A
  back
  numbers
  numbers.blp
  original
  small.blp

Threads don't change what is written.

  $ blpk -n 1 c -z 256 numbers one.blp
  $ blpk -n 4 c -z 256 numbers four.blp
  $ cmp one.blp four.blp

An empty file is a file too.

  $ : > empty
  $ blpk c empty
  $ blpk d empty.blp empty.back
  $ cmp empty empty.back

Files that begin with a dash go behind '--'.

  $ cp numbers ./-x
  $ blpk c -- -x
  $ blpk d -- -x.blp x.back
  $ cmp x.back numbers

  $ rm -- -x -x.blp back empty empty.back empty.blp four.blp numbers numbers.blp \
  >   one.blp original small.blp x.back
  $ ls -A
