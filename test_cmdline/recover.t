Saving what is intact.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ blpk c -z 1K -l 0 numbers
  $ { head -c 1500 numbers.blp; printf '!'; tail -c +1502 numbers.blp; } > damaged.blp
  $ cp damaged.blp before
  $ blpk recover damaged.blp saved.blp
  damaged.blp: 3 of 4 chunks saved to saved.blp
    error: Checksum mismatch * (glob)
    lost: chunk 1, plain bytes 1024 to 2048
    note: lost chunks are filled with bytes 0
  [3]
  $ cmp damaged.blp before
  $ blpk verify saved.blp
  saved.blp: ok (4 chunks, 3.8K)
    note: recovered from damage: bytes 1024 to 2048 are filled with bytes 0 (section 'metadata')
  $ blpk d saved.blp
  blpk: Metadata:
  blpk: {'bloscpack_recovered': {'certain': True,
  blpk:                          'fill': 0,
  blpk:                          'filled': [[1024, 2048]],
  blpk:                          'left_out': [],
  blpk:                          'metadata_lost': False,
  blpk:                          'unit': 'bytes'}}
  $ cmp -n 1024 numbers saved
  $ tail -c +2049 numbers > end
  $ tail -c +2049 saved | cmp - end

Lost chunks are filled with any byte, or left out.

  $ blpk -f r --fill 65 damaged.blp saved.blp > told
  [3]
  $ blpk metadata --remove bloscpack_recovered saved.blp
  $ blpk -f d saved.blp
  $ head -c 1028 saved | tail -c 4; echo
  AAAA
  $ blpk -f r --drop damaged.blp saved.blp > told
  [3]
  $ blpk v saved.blp
  saved.blp: ok (3 chunks, 2.8K)
    note: recovered from damage: bytes 1024 to 2048 are left out (section 'metadata')

Header and offset table are made anew. Nobody knows then how many chunks there were.

  $ { head -c 384 /dev/zero; tail -c +385 numbers.blp; } > damaged.blp
  $ blpk -f recover damaged.blp saved.blp
  damaged.blp: 4 of 4 chunks saved to saved.blp
    error: the magic marker * (glob)
    note: the positions of saved data are not certain: only one statement gives the number of chunks; the header is damaged
    note: there may have been metadata: none were found
  [3]
  $ blpk -f d saved.blp
  $ cmp numbers saved

Of a file that was cut off, all that is there is in its place.

  $ blpk -f c -z 1K -c zstd -s -t 1 numbers cut.blp
  $ head -c 1200 cut.blp > damaged.blp
  $ blpk -f recover damaged.blp saved.blp | grep place
    note: all that was saved is in its place; the length of the lost end is not certain: only the header states the plain sizes of lost chunks
  $ rm cut.blp

The new file can go to standard output; what is told goes to standard error.

  $ blpk recover numbers.blp - 2> told | cat > saved.blp
  $ cat told
  blpk: numbers.blp: 4 of 4 chunks saved to -
  $ blpk -f d saved.blp
  $ cmp numbers saved

  $ blpk recover numbers.blp /dev/stdout 2> told | cmp - saved.blp
  $ mkfifo pipe
  $ cat pipe > piped.blp & blpk recover numbers.blp pipe && wait && cmp piped.blp saved.blp
  numbers.blp: 4 of 4 chunks saved to pipe
  $ rm pipe piped.blp

What can't be done.

  $ blpk recover damaged.blp saved.blp
  blpk: error: output file 'saved.blp' exists!
  [1]
  $ blpk -f recover damaged.blp damaged.blp
  blpk: error: input 'damaged.blp' and output 'damaged.blp' are the same file
  [2]
  $ blpk recover damaged.blp .
  blpk: error: '.': Is a directory
  [1]
  $ blpk recover --fill 256 damaged.blp new.blp
  blpk: error: --fill must be a number from 0 to 255, not '256'
  [2]
  $ blpk recover numbers new.blp 2> errors
  [1]
  $ ls -A
  before
  damaged.blp
  end
  errors
  numbers
  numbers.blp
  saved
  saved.blp
  told
  $ rm before damaged.blp end errors numbers numbers.blp saved saved.blp told
