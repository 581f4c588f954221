Appending to a compressed file.

  $ awk 'BEGIN { for (i = 1; i <= 500; i++) print i }' > first
  $ awk 'BEGIN { for (i = 501; i <= 1000; i++) print i }' > second
  $ cat first second > both
  $ header() { blpk info --json "$1" | sed -n "/\"header\"/,/}/s/^ *\"$2\": \([^,]*\),*$/\1/p"; }

  $ blpk c -z 1K first x.blp
  $ header x.blp nchunks
  2
  $ blpk append x.blp second
  $ header x.blp nchunks
  4
  $ header x.blp max_app_chunks
  18
  $ blpk d x.blp
  $ cmp x both

Appending writes what compressing all of it at once would have, as far as the
chunks go.

  $ blpk c -z 1K both y.blp
  $ blpk info x.blp | grep -v -e room -e packed -e ratio > x.info
  $ blpk info y.blp | grep -v -e room -e packed -e ratio > y.info
  $ cmp x.info y.info

A file smaller than a chunk, even an empty one, grows to full chunks.

  $ : > empty
  $ blpk c empty small.blp
  $ blpk a small.blp first
  $ blpk a small.blp second
  $ header small.blp nchunks
  1
  $ blpk d small.blp
  $ cmp small both

Nothing to append changes nothing.

  $ cp x.blp before
  $ blpk a x.blp empty
  $ cmp x.blp before

The type size is that of the file, unless another is asked for; the header keeps
the first.

  $ blpk -f c -t 4 -z 1K first x.blp
  $ blpk a -t 2 -l 9 -c zlib -s x.blp second
  $ header x.blp typesize
  4
  $ blpk -f d x.blp
  $ cmp x both

Names without '.blp' have to be asked for.

  $ mv x.blp x.dat
  $ blpk a x.dat second
  blpk: error: original file 'x.dat' does not end with '.blp'
  [1]
  $ blpk a -e x.dat second
  $ blpk d -e x.dat x3
  $ cat both second | cmp - x3

-v tells what is done.

  $ blpk -f c -l 0 -z 1K first x.blp
  $ blpk -v -n 1 a -l 0 x.blp second
  blpk: using 1 thread
  blpk: getting ready for append
  blpk: original file is: 'x.blp'
  blpk: new file is: 'second'
  blpk: orig file size before append: 2.09K (2140B)
  blpk: new file size: 1.95K (2001B)
  blpk: nchunks: 2
  blpk: chunk_size: 1.0K (1024B)
  blpk: last_chunk_size: 821.0B (821B)
  blpk: orig file size after append: 4.08K (4181B)
  blpk: Approximate compression ratio of appended data: 1.019990
  blpk: done

A file without offsets takes more too. A file from a pipe is replaced by a copy, which
states its number of chunks and has offsets.

  $ blpk -f c -o -z 1K both y.blp
  $ blpk -f c -o -z 1K first x.blp
  $ blpk a x.blp second
  $ cmp x.blp y.blp
  $ cat first | blpk c -z 1K - - | cat > x.blp
  $ blpk a x.blp second
  $ blpk cat x.blp | cmp - both

A file that is missing is made, if that is wanted.

  $ blpk a log.blp first
  blpk: error: original file 'log.blp' does not exist!
  [1]
  $ blpk a --create log.blp first
  $ blpk a --create log.blp second
  $ blpk d log.blp - | cmp - both
  $ blpk a log.dat first
  blpk: error: original file 'log.dat' does not exist!
  [1]
  $ blpk a log.blp missing
  blpk: error: new file 'missing' does not exist!
  [1]
  $ rm log.blp

What can't be appended to stays as it was.

  $ cp x.blp before
  $ blpk a x.blp x.blp
  blpk: error: input 'x.blp' and output 'x.blp' are the same file
  [2]
  $ cmp x.blp before

The table of offsets has ten times the room that the file needed at first.

  $ printf 12345678 > word
  $ cat word word > two
  $ cat two two two two two two two two two two > twenty
  $ blpk -f c -z 8 two x.blp
  $ header x.blp max_app_chunks
  20
  $ blpk a x.blp twenty
  $ header x.blp nchunks
  22
  $ header x.blp max_app_chunks
  0
  $ cp x.blp before
  $ blpk a --no-grow x.blp word
  blpk: error: not enough space: '1' chunks are to be appended, but the offset table has room for '0' (file 'x.blp')
  [1]
  $ cmp x.blp before

A file with more room replaces it: for ten times the chunks, which become larger.

  $ blpk a x.blp word
  $ header x.blp nchunks
  1
  $ header x.blp max_app_chunks
  10

  $ rm before both empty first second small small.blp twenty two word x x.blp \
  >   x.dat x.info x3 y.blp y.info
  $ ls -A
