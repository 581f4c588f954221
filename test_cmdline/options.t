What the options change.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ header() { blpk info --json "$1" | sed -n "/\"header\"/,/}/s/^ *\"$2\": \([^,]*\),*$/\1/p"; }

Level 0 stores the bytes, so that the sizes are known. -v tells what is done:

  $ blpk -v -n 1 compress -l 0 numbers
  blpk: using 1 thread
  blpk: getting ready for compression
  blpk: input file is: 'numbers'
  blpk: output file is: 'numbers.blp'
  blpk: input file size: 3.8K (3893B)
  blpk: Input was smaller than the given 'chunk_size': 1.0M (1048576B) using: 3.8K (3893B)
  blpk: nchunks: 1
  blpk: chunk_size: 3.8K (3893B)
  blpk: last_chunk_size: 3.8K (3893B)
  blpk: output file size: 3.94K (4033B)
  blpk: compression ratio: 0.965286
  blpk: took: * (glob)
  blpk: done
  $ blpk -v -n 2 -f decompress numbers.blp
  blpk: using 2 threads
  blpk: getting ready for decompression
  blpk: overwriting existing file: 'numbers'
  blpk: input file is: 'numbers.blp'
  blpk: output file is: 'numbers'
  blpk: input file size: 3.94K
  blpk: output file size: 3.8K
  blpk: decompression ratio: 0.965286
  blpk: took: * (glob)
  blpk: done

The chunk size is a number of bytes, one with a suffix, or 'max'.

  $ for size in 1000 1K 0.5K max; do
  >   blpk -f c -z $size numbers; header numbers.blp chunk_size
  > done
  1000
  1024
  512
  3893

Typesize, codec and filter.

  $ for type in 1 8 255; do blpk -f c -t $type numbers; header numbers.blp typesize; done
  1
  8
  255
  $ for codec in blosclz lz4 lz4hc zlib zstd; do
  >   blpk -f c -c $codec numbers && blpk -f d numbers.blp back && cmp numbers back
  > done
  $ for filter in '' --no-shuffle --bitshuffle; do
  >   blpk -f c $filter -t 4 -c zlib numbers
  >   blpk info numbers.blp | grep codec
  > done
  codec:      zlib, filter shuffle
  codec:      zlib, filter none
  codec:      zlib, filter bitshuffle

Every checksum, and none.

  $ sums=$(python3 -c 'from bloscpack.checksums import *; print(*CHECKSUMS_AVAIL)')
  $ for sum in $sums; do
  >   blpk -f c -l 0 -k $sum -o numbers
  >   test "$(header numbers.blp checksum)" = "\"$sum\"" || echo $sum
  >   blpk -f d numbers.blp back && cmp numbers back
  > done

Without offsets there is no room for chunks to append either.

  $ header numbers.blp offsets
  false
  $ header numbers.blp max_app_chunks
  0

Any name can be decompressed if the output is named.

  $ mv numbers.blp numbers.dat
  $ blpk d -e numbers.dat numbers.back
  $ cmp numbers numbers.back

  $ rm back numbers numbers.back numbers.dat
  $ ls -A
