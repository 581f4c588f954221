Existing files are only replaced if asked for, and then wholly or not at all.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ echo precious > numbers.blp
  $ blpk c numbers
  blpk: error: output file 'numbers.blp' exists!
  [1]
  $ cat numbers.blp
  precious

  $ blpk -f c -l 0 -z 1K numbers
  $ head -c 4 numbers.blp && echo
  blpk
  $ blpk d numbers.blp
  blpk: error: output file 'numbers' exists!
  [1]
  $ echo other > numbers
  $ blpk -v -n 1 -f d numbers.blp
  blpk: using 1 thread
  blpk: getting ready for decompression
  blpk: overwriting existing file: 'numbers'
  blpk: input file is: 'numbers.blp'
  blpk: output file is: 'numbers'
  blpk: input file size: 4.25K
  blpk: output file size: 3.8K
  blpk: decompression ratio: 0.893505
  blpk: took: * (glob)
  blpk: done
  $ tail -n 1 numbers
  1000

If it fails, the old file stays.

  $ echo precious > keep
  $ head -c 2000 numbers.blp > short.blp
  $ blpk -f d short.blp keep
  blpk: error: the file ends too early: * (file 'short.blp', section 'chunks', chunk 1, byte 1428) (glob)
  [3]
  $ cat keep
  precious
  $ blpk -f c -t 0 --output keep numbers
  blpk: error: 'typesize' must be in the range 1 <= n <= 255, not '0'
  [2]
  $ cat keep
  precious

Two names may be those of two inputs, of which none is replaced.

  $ blpk -f c numbers keep
  blpk: error: 'keep' exists and is no Bloscpack file; --output names an output, --output-dir its folder
  [2]
  $ blpk -f d numbers.blp short.blp
  blpk: error: 'short.blp' has the name of a compressed file; --output names an output, --output-dir its folder
  [2]
  $ cat keep
  precious

Nothing is read and written at once, whatever it is called.

  $ ln numbers.blp same.blp
  $ ln -s numbers.blp link.blp
  $ cp numbers.blp before
  $ blpk -f c numbers.blp numbers.blp
  blpk: error: input 'numbers.blp' and output 'numbers.blp' are the same file
  [2]
  $ blpk -f c numbers.blp same.blp
  blpk: error: input 'numbers.blp' and output 'same.blp' are the same file
  [2]
  $ blpk -f d link.blp numbers.blp
  blpk: error: input 'link.blp' and output 'numbers.blp' are the same file
  [2]
  $ cmp numbers.blp before

A link is followed, and the permissions of a file stay.

  $ chmod 640 keep
  $ ln -s keep alias
  $ blpk -f c --output alias numbers
  $ test -L alias
  $ blpk d -e keep back
  $ cmp back numbers
  $ ls -l keep | cut -c 1-10
  -rw-r-----

Through a link to a missing file nothing is written without -f.

  $ ln -s missing dangling
  $ blpk d -e keep dangling
  blpk: error: output file 'dangling' exists! It is a symbolic link to the missing file '*/missing' (glob)
  [1]
  $ test -e missing
  [1]
  $ blpk -f d -e keep dangling
  $ cmp missing numbers
  $ rm dangling missing

A private input has a private output, whoever could read the file before.

  $ cp numbers private
  $ chmod 600 private
  $ blpk c --no-preserve private
  $ ls -l private.blp | cut -c 1-10
  -rw-------
  $ chmod 644 keep
  $ blpk -f c private keep
  $ ls -l keep | cut -c 1-10
  -rw-------
  $ rm private private.blp

  $ ls -A
  alias
  back
  before
  keep
  link.blp
  numbers
  numbers.blp
  same.blp
  short.blp
  $ rm alias back before keep link.blp numbers numbers.blp same.blp short.blp
  $ ls -A
