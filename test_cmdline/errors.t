Errors and exit codes.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ blpk c -z 1K -l 0 numbers

0 is for success; messages of errors go to standard error.

  $ blpk i numbers.blp > /dev/null; echo $?
  0
  $ blpk c nothing 2> /dev/null
  [1]

1 means that it could not be done.

  $ blpk c nothing
  blpk: error: input file 'nothing' does not exist!
  [1]
  $ blpk d nothing.blp
  blpk: error: input file 'nothing.blp' does not exist!
  [1]
  $ blpk a nothing.blp numbers
  blpk: error: original file 'nothing.blp' does not exist!
  [1]
  $ blpk a numbers.blp nothing
  blpk: error: new file 'nothing' does not exist!
  [1]
  $ blpk i nothing
  blpk: error: file 'nothing' does not exist!
  [1]
  $ blpk c numbers
  blpk: error: output file 'numbers.blp' exists!
  [1]
  $ blpk d numbers
  blpk: error: input file 'numbers' does not end with '.blp'
  [1]
  $ blpk a numbers numbers
  blpk: error: original file 'numbers' does not end with '.blp'
  [1]
  $ blpk c numbers no/such/folder
  blpk: error: folder 'no/such' of 'no/such/folder' does not exist!
  [1]
  $ mkdir folder
  $ blpk c folder
  blpk: error: 'folder': Is a directory; -r is for the files in a folder
  [1]
  $ mkdir -p folder/inner && printf 'DTYPE: <i4\nNMEMB: 1\nNFILE: 0\n' > folder/inner/header
  $ touch folder/other
  $ blpk c folder
  blpk: error: 'folder': Is a directory; -r is for the files in a folder
  [1]
  $ blpk -f c numbers folder
  blpk: error: 'folder': Is a directory; --output-dir names a folder for outputs
  [1]
  $ cp numbers text.blp
  $ blpk d text.blp
  blpk: error: the magic marker b'blpk' is missing from the bloscpack header, instead we found: b'1\n2\n' (file 'text.blp', section 'header', byte 0)
  blpk: error: This might not be a bloscpack compressed file.
  [1]
  $ blpk i text.blp
  blpk: error: the magic marker b'blpk' is missing from the bloscpack header, instead we found: b'1\n2\n' (file 'text.blp', section 'header', byte 0)
  blpk: error: This might not be a bloscpack compressed file.
  [1]

2 is for wrong usage; the program says what would be right.

  $ blpk <&- 2> usage
  [2]
  $ tail -n 1 usage
  blpk: error: too few arguments
  $ blpk c 2> usage
  [2]
  $ tail -n 1 usage
  blpk c: error: the following arguments are required: <in_file>
  $ blpk c --fast numbers 2> usage
  [2]
  $ tail -n 2 usage
  usage: blpk [-h] [options] SUBCOMMAND ...
  blpk: error: unrecognized arguments: --fast; did you mean '--auto'?
  $ blpk -v -d c numbers 2> usage
  [2]
  $ tail -n 1 usage
  blpk: error: argument -d/--debug: not allowed with argument -v/--verbose
  $ blpk -n 0 c numbers x.blp
  blpk: error: -n must be 1 <= n <= 256
  [2]
  $ blpk c -z 0 numbers x.blp
  blpk: error: -z must be > 0
  [2]
  $ blpk c -z lots numbers x.blp
  blpk: error: -z error: expected a number of bytes, or one with a suffix from B K M G T like 1.5M, 1.5MB or 1.5MiB, found 'lots'
  [2]
  $ blpk c --max-meta-size abc numbers x.blp
  blpk: error: --max-meta-size error: expected a number of bytes, or one with a suffix from B K M G T like 1.5M, 1.5MB or 1.5MiB, found 'abc'
  [2]
  $ blpk c -z 3G numbers x.blp
  blpk: error: 'chunk_size' must be in the range 1 <= n <= 2147483631, not '3221225472'
  [2]
  $ blpk c -t 256 numbers x.blp
  blpk: error: 'typesize' must be in the range 1 <= n <= 255, not '256'
  [2]
  $ blpk d -e numbers.blp
  blpk: error: --no-check-extension requires use of <out_file>
  [2]
  $ blpk d .blp
  blpk: error: input file '.blp' does not exist!
  [1]

3 means that the file is damaged. The message names the place, and nothing is left
behind.

  $ head -c 2000 numbers.blp > short.blp
  $ blpk d short.blp
  blpk: error: the file ends too early: * (file 'short.blp', section 'chunks', chunk 1, byte 1428) (glob)
  [3]
  $ head -c 100 numbers.blp > shorter.blp
  $ blpk i shorter.blp
  blpk: error: the file ends too early: * (file 'shorter.blp', section 'offsets', byte 32) (glob)
  [3]
  $ { head -c 1500 numbers.blp; printf '!'; tail -c +1502 numbers.blp; } > damaged.blp
  $ blpk d damaged.blp
  *Checksum mismatch detected in chunk, expected: * (file 'damaged.blp', section 'chunks', chunk 1, byte 1428) (glob)
  [3]
  $ { head -c 4000 numbers.blp; printf '!'; tail -c +4002 numbers.blp; } > damaged.blp
  $ cat damaged.blp > before
  $ blpk a damaged.blp numbers
  *Checksum mismatch detected in chunk, expected: * (glob)
  [3]
  $ cmp damaged.blp before

  $ ls -A
  before
  damaged.blp
  folder
  numbers
  numbers.blp
  short.blp
  shorter.blp
  text.blp
  usage
  $ rm before damaged.blp numbers numbers.blp short.blp shorter.blp text.blp usage
  $ rm -r folder
  $ ls -A
