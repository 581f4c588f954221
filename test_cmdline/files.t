Many files at once: with three names or more, each is an input.

  $ for name in a b c; do awk -v n=$name 'BEGIN { for (i = 1; i <= 500; i++) print n, i }' > $name; done
  $ blpk compress a b c
  $ ls
  a
  a.blp
  b
  b.blp
  c
  c.blp

Two names stay input and output.

  $ blpk compress a packed.blp
  $ blpk decompress packed.blp again
  $ cmp a again

One failure does not stop the others, and the exit code tells.

  $ blpk compress a b c
  blpk: error: output file 'a.blp' exists!
  blpk: error: output file 'b.blp' exists!
  blpk: error: output file 'c.blp' exists!
  [1]
  $ rm b.blp
  $ blpk compress a missing b c
  blpk: error: output file 'a.blp' exists!
  blpk: error: input file 'missing' does not exist!
  blpk: error: output file 'c.blp' exists!
  [1]
  $ ls b.blp
  b.blp
  $ head -c 700 c.blp > short.blp
  $ rm a b c
  $ blpk decompress a.blp short.blp b.blp
  blpk: error: * (file 'short.blp', section 'chunks', chunk 0, byte *) (glob)
  [3]
  $ ls a b
  a
  b

An option that says where outputs go makes all names inputs.

  $ blpk compress --output-dir packed a b
  $ ls packed
  a.blp
  b.blp
  $ blpk compress --output one.blp a
  $ blpk compress --output one.blp a b
  blpk: error: --output is for one input, but there are 2
  [2]
  $ mkdir -p x y && cp a x/same && cp b y/same
  $ blpk compress --output-dir z x/same y/same a
  blpk: error: 'x/same' and 'y/same' would both be written to 'z/same.blp'
  [2]
  $ test -e z
  [1]

Names behind options, and other suffixes.

  $ blpk compress -k crc32 a -c lz4 other.blp
  $ blpk decompress --suffix .blosc --output-dir o a.blp b.blp
  blpk: error: input file 'a.blp' does not end with '.blosc'
  [1]
  $ blpk compress --suffix .blosc --output-dir o a b
  $ ls o
  a.blosc
  b.blosc

Folders, and lists of names.

  $ mkdir -p tree/below && cp a tree && cp b tree/below && ln -s a tree/link
  $ blpk compress --recursive --output-dir mirror tree
  blpk: skipped 'tree/link': no regular file
  $ find mirror -type f | sort
  mirror/a.blp
  mirror/below/b.blp
  $ blpk decompress -r --output-dir back mirror
  $ cmp a back/a && cmp b back/below/b
  $ blpk compress tree
  blpk: error: 'tree': Is a directory; -r is for the files in a folder
  [1]
  $ printf 'a\nb\n' > names
  $ blpk compress --files-from names --output-dir l1
  $ printf 'a\0b\0' | blpk compress --files-from - --output-dir l2
  $ ls l1 l2
  l1:
  a.blp
  b.blp
  
  l2:
  a.blp
  b.blp
  $ blpk compress
  usage: blpk compress * (glob)
  blpk compress: error: the following arguments are required: <in_file>
  [2]

An input is removed when its output is safe, and only then.

  $ cp a gone && cp a stays && echo in the way > stays.blp
  $ blpk compress --rm --suffix .blp --output-dir . gone stays
  blpk: error: output file './stays.blp' exists!
  [1]
  $ ls gone* stays*
  gone.blp
  stays
  stays.blp

  $ blpk compress --rm stays - > /dev/null
  blpk: error: --rm removes nothing whose output is not in a file: '-'
  [2]
  $ blpk compress --rm stays /dev/null
  blpk: error: --rm removes nothing whose output is not in a file: '/dev/null'
  [2]
  $ ls stays
  stays

What is no regular file is not removed, nor the file that a link stands for.

  $ ln -s a link
  $ blpk compress --rm link linked.blp
  blpk: error: --rm removes nothing but regular files, no links and no streams: 'link'
  [2]
  $ blpk compress --rm - piped.blp < a
  blpk: error: --rm removes nothing but regular files, no links and no streams: '-'
  [2]
  $ ls link* && test -e piped.blp
  link
  [1]

Nor are metadata that nothing else has.

  $ echo '{"unit": "m"}' > unit.json
  $ blpk compress -m unit.json a unit.blp
  $ blpk -q decompress --rm --output unit unit.blp
  blpk: error: 'unit.blp' has metadata, which --rm would lose: --metadata-to FILE keeps them
  [1]
  $ blpk decompress --rm --metadata-to unit.json --output unit unit.blp
  blpk: error: output file 'unit.json' exists!
  [1]
  $ blpk decompress --rm --metadata-to . --output unit unit.blp
  blpk: error: '.': Is a directory
  [1]
  $ ls unit.*
  unit.blp
  unit.json
  $ blpk decompress --rm --metadata-to kept.json --output unit unit.blp
  $ cat kept.json && cmp a unit
  {
   "unit": "m"
  }
  $ ls unit.*
  unit.json

No output is an input of the same run.

  $ blpk -f compress a a.blp b
  blpk: error: the output 'a.blp' of 'a' is an input too
  [2]

The suffix holds for one name too, and what stands for another file is no place for an
output.

  $ blpk compress --suffix .blosc stays && ls stays.blosc
  stays.blosc
  $ blpk decompress --suffix .blosc --rm --output stays-again stays.blosc && cmp stays stays-again
  $ blpk compress /dev/stdin < a
  blpk: error: input '/dev/stdin' is no regular file, so <out_file> must be given
  [2]

Metadata go neither over the data nor over one another.

  $ blpk -f decompress --metadata-to back-a a.blp back-a
  blpk: error: metadata and data can't both be 'back-a'
  [2]
  $ blpk decompress --metadata-to m --output-dir om a.blp b.blp
  blpk: error: --metadata-to is for one input
  [2]
  $ blpk decompress --metadata-to - a.blp -
  blpk: error: metadata and data can't both be '-'
  [2]
  $ blpk compress - closed.blp <&-
  blpk: error: standard input is closed
  [1]

Outputs have the times and permissions of inputs.

  $ touch -d '2001-02-03 04:05:06 UTC' a && chmod 640 a
  $ blpk compress a dated.blp && blpk decompress dated.blp dated
  $ ls -l dated dated.blp | cut -c1-10
  -rw-r-----
  -rw-r-----
  $ for name in dated dated.blp; do test a -nt $name || test a -ot $name || echo same time; done
  same time
  same time

Nothing is asked to be done, and an option that wants a name that is like no other.

  $ : > none
  $ blpk compress --files-from none
  blpk: nothing to do: there are no inputs
  $ blpk decompress -e a
  blpk: error: --no-check-extension requires use of <out_file>
  [2]
  $ cp a.blp a.packed
  $ blpk decompress --output a.plain a.packed
  blpk: error: input file 'a.packed' does not end with '.blp'
  [1]
  $ blpk decompress -e --output a.plain a.packed && cmp a a.plain
  $ blpk decompress -e a.packed b.blp c.packed
  blpk: error: 'a.packed' does not end with '.blp': --no-check-extension requires use of --output or --output-dir
  [2]
  $ blpk decompress -e --output-dir any a.packed b.blp && ls any && cmp a any/a.packed
  a.packed
  b

A name in a list is that of a file.

  $ printf 'b\n-\n' > names
  $ blpk -v compress --files-from names --output-dir dash < a
  blpk: using * (glob)
  blpk: getting ready for compression
  blpk: error: 'names' lists '-', which can't be standard input there; a file of that name is './-'
  [2]
  $ test -e dash
  [1]

A name may look like an option, behind two dashes.

  $ cp a ./-x
  $ blpk compress a --output-dir dashed -- -x b
  $ ls dashed
  -x.blp
  a.blp
  b.blp

A misspelt verb.

  $ blpk compres a 2>&1 | tail -n 1
  blpk: error: there is no subcommand 'compres'; did you mean 'compress'?

Two files one behind the other are read as one; a change of them is refused.

  $ printf 'first' > uno; printf 'second' > due
  $ blpk compress uno uno.blp && blpk compress due due.blp
  $ cat uno.blp due.blp > both.blp
  $ blpk decompress both.blp first && cat first; echo
  firstsecond
  $ cat uno.blp due.blp uno.blp | blpk -d; echo
  firstsecondfirst
  $ blpk cat both.blp; blpk cat --bytes 1:9 both.blp; echo
  firstsecondirstblpk: behind 'both.blp' begins another packed file, which is not read
  
  $ blpk decompress --rm --output third both.blp
  blpk: error: 'both.blp' has '*' bytes behind the last chunk, which --rm would lose (glob)
  [1]
  $ ls both.blp; test -e third
  both.blp
  [1]
  $ blpk verify both.blp
  both.blp: ok (1 chunk, 5.0B)
    note: '*' bytes lie behind the last chunk: another packed file begins there * (glob)
  both.blp, from byte * on: ok (1 chunk, 6.0B) (glob)
  $ blpk list --bytes both.blp | grep -c both
  2
  $ blpk info both.blp | grep from
  both.blp, from byte * on: (glob)
  $ blpk append both.blp uno
  blpk: *another* (glob)
  [1]

Other bytes behind a file are a warning, and exit code 1.

  $ cp uno.blp more.blp; echo more >> more.blp
  $ blpk decompress more.blp
  blpk: other bytes lie behind 'more.blp', and are not read: 'blpk verify' says more
  [1]
  $ cat more; echo
  first
  $ blpk -d < more.blp 2> errors; echo " $?"
  first 1
  $ blpk verify more.blp
  more.blp: followed by other bytes (1 chunk, 5.0B)
    note: '5' bytes lie behind the last chunk (section 'chunks', byte *) (glob)
  [1]

More than one list of names.

  $ echo uno > list1; echo due > list2
  $ blpk compress --files-from list1 --files-from list2 --output-dir lists
  $ ls lists
  due.blp
  uno.blp
  $ rm -r uno due uno.blp due.blp both.blp more more.blp errors first list1 list2 lists
