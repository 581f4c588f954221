Rewriting a compressed file with other settings.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ header() { blpk info --json "$1" | sed -n "/\"header\"/,/}/s/^ *\"$2\": \([^,]*\),*$/\1/p"; }
  $ blpk c -z 1K --max-app-chunks 0 numbers

Without room for more chunks, append makes room, unless that is refused.

  $ cp numbers.blp before
  $ blpk append --no-grow numbers.blp numbers
  blpk: error: not enough space: '4' chunks are to be appended, but the offset table has room for '0' (file 'numbers.blp')
  [1]
  $ cmp numbers.blp before
  $ blpk repack --max-app-chunks 4 numbers.blp
  $ blpk append numbers.blp numbers
  $ header numbers.blp max_app_chunks
  0
  $ blpk append numbers.blp numbers
  $ header numbers.blp nchunks
  1
  $ header numbers.blp max_app_chunks
  10
  $ cat numbers numbers numbers > all
  $ blpk d numbers.blp back
  $ cmp all back

A file from a pipe has no offset table and needs no room.

  $ cat numbers | blpk c -z 1K - - | cat > piped.blp
  $ header piped.blp nchunks
  -1
  $ blpk append --no-grow piped.blp numbers
  $ header piped.blp nchunks
  1
  $ blpk append piped.blp numbers
  $ blpk -f d piped.blp back
  $ cmp all back

What no option changes stays.

  $ blpk repack -c zstd -l 9 -z 2K numbers.blp piped.blp
  $ blpk repack -k sha256 numbers.blp
  $ header numbers.blp chunk_size
  2048
  $ header numbers.blp checksum
  "sha256"
  $ blpk info numbers.blp | grep codec
  codec:      zstd, filter shuffle
  $ blpk -f d numbers.blp back
  $ cmp all back

A damaged file stays as it is.

  $ head -c 1000 numbers.blp > short.blp
  $ cp short.blp before
  $ blpk repack -l 1 short.blp
  * the file ends too early: * (glob)
  [3]
  $ cmp short.blp before
  $ blpk repack -
  blpk: error: a file to rewrite can't be standard input
  [2]
  $ blpk repack numbers.blp missing.blp
  blpk: error: file 'missing.blp' does not exist!
  [1]

An array file becomes a shard of a Zarr array, and an ordinary file again.

  $ python -c "import numpy; numpy.save('a.npy', numpy.arange(3000.).reshape(300, 10))"
  $ blpk c --npy -z 10K a.npy a.blp
  $ cp a.blp before
  $ blpk repack --shard a.blp
  $ blpk info a.blp | grep shard
  shard:      128 rows in a chunk, 33 slots, with an index
  $ header a.blp checksum
  "crc32c"
  $ blpk verify a.blp
  a.blp: ok (3 chunks, 23.44K)
  $ blpk repack --no-shard -k adler32 a.blp
  $ cmp a.blp before
  $ blpk repack --shard numbers.blp
  blpk: error: expected the metadata of an array, found None: the file contains bytes and no array; 'blpk decompress', open and unpack_bytes_from_file read them; 'blpk compress --npy' and 'blpk convert' store the array of a .npy file (file 'numbers.blp', section 'metadata')
  [1]

  $ ls -A
  a.blp
  a.npy
  all
  back
  before
  numbers
  numbers.blp
  piped.blp
  short.blp
  $ rm *
